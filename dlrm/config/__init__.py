"""The job document, one component a file. Imports no torch."""

from dlrm.config.batch import BatchConfig
from dlrm.config.data import DataConfig, SyntheticConfig, VocabularyConfig
from dlrm.config.derived import DerivedNumber, ResolvedJob, resolve
from dlrm.config.errors import ConfigError, FieldError, field_errors
from dlrm.config.job import JobSpec, parse_job
from dlrm.config.model import ModelConfig
from dlrm.config.optimizers import DenseOptimizerConfig, TableOptimizerConfig
from dlrm.config.resources import ResourcesConfig
from dlrm.config.run import RunConfig
from dlrm.config.schedule import ScheduleConfig
from dlrm.config.sharding import ShardingConfig

__all__ = [
    "BatchConfig",
    "ConfigError",
    "DataConfig",
    "DenseOptimizerConfig",
    "DerivedNumber",
    "FieldError",
    "JobSpec",
    "ModelConfig",
    "ResolvedJob",
    "ResourcesConfig",
    "RunConfig",
    "ScheduleConfig",
    "ShardingConfig",
    "SyntheticConfig",
    "TableOptimizerConfig",
    "VocabularyConfig",
    "field_errors",
    "parse_job",
    "resolve",
]
