"""The job document, with one module for each component. Imports no torch."""

from dlrm.config.batch import MAX_BATCH, BatchConfig
from dlrm.config.data import DataConfig, SyntheticConfig
from dlrm.config.derived import DerivedNumber, DerivedWarning, ResolvedJob, resolve
from dlrm.config.errors import ConfigError, FieldError, field_errors
from dlrm.config.identity import differences, identity_of
from dlrm.config.job import JobSpec, parse_job
from dlrm.config.model import ModelConfig
from dlrm.config.moments import MomentsConfig
from dlrm.config.optimizers import DenseOptimizerConfig, TableOptimizerConfig
from dlrm.config.parameter_groups import ParameterGroupConfig
from dlrm.config.resources import ResourcesConfig
from dlrm.config.run import RunConfig
from dlrm.config.schedule import ScheduleConfig
from dlrm.config.schema import CRITEO_SCHEMA, CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.config.sharding import ShardingConfig
from dlrm.config.variance_reduction import VarianceReductionConfig
from dlrm.config.vocabulary import ColumnVocabularyConfig, Counting, Hashing, VocabularyConfig
from dlrm.config.warm_fit import faults_of_warm_start, starting_from
from dlrm.config.warm_start import WarmStartConfig

__all__ = [
    "CRITEO_SCHEMA",
    "MAX_BATCH",
    "BatchConfig",
    "CategoricalColumn",
    "ColumnVocabularyConfig",
    "ConfigError",
    "Counting",
    "DataConfig",
    "DenseColumn",
    "DenseOptimizerConfig",
    "DerivedNumber",
    "DerivedWarning",
    "FieldError",
    "Hashing",
    "JobSpec",
    "ModelConfig",
    "MomentsConfig",
    "ParameterGroupConfig",
    "ResolvedJob",
    "ResourcesConfig",
    "RunConfig",
    "ScheduleConfig",
    "SchemaConfig",
    "ShardingConfig",
    "SyntheticConfig",
    "TableOptimizerConfig",
    "VarianceReductionConfig",
    "VocabularyConfig",
    "WarmStartConfig",
    "differences",
    "faults_of_warm_start",
    "field_errors",
    "identity_of",
    "parse_job",
    "resolve",
    "starting_from",
]
