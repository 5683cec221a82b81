"""The job document, with one module for each component. Imports no torch."""

# pyright: reportUnusedImport=false

from dlrm.config.attention import NO_FILES_OF_SEQUENCES, NO_SEQUENCES, NOT_PRECONDITIONED, AttentionConfig
from dlrm.config.augmentation import AugmentationConfig
from dlrm.config.autowu import AutoWarmupConfig
from dlrm.config.batch import MAX_BATCH, BatchConfig, BatchGrowth, shorten_sizes
from dlrm.config.continuation import make_cooldown_job, make_retraining
from dlrm.config.cooldown import cool_down
from dlrm.config.data import (
    ColumnVocabularyConfig,
    Counting,
    DataConfig,
    DynamicIdsConfig,
    Hashing,
    SyntheticConfig,
    TeacherConfig,
    VocabularyConfig,
    count_shared_rows,
)
from dlrm.config.decide import (
    MAX_AUTO_BATCH,
    MIN_BATCH,
    DataFacts,
    Decision,
    choose_batch,
    count_synthetic_train_rows,
    get_auto_dim,
    get_min_large_steps,
    keep_decisions,
)
from dlrm.config.dense_averaging import DenseAveragingConfig
from dlrm.config.derived import (
    DerivedNumber,
    DerivedWarning,
    ResolvedJob,
    resolve,
    resolve_for_nodes,
    resolve_with_rows,
)
from dlrm.config.document_text import DocumentTextError, decode_document, describe_odd_character, find_line
from dlrm.config.errors import ConfigError, FieldError, list_constraints, parse_document, translate_errors
from dlrm.config.identity import EXECUTION_SETTINGS, flatten, list_differences, make_identity
from dlrm.config.job import MAX_LABELS, MAX_PRIORITY, JobConfig, JobSpec, LabelValue, Name, parse_job
from dlrm.config.messages import format_count, format_epochs, format_some
from dlrm.config.methods import list_methods
from dlrm.config.model import Architecture, ModelConfig
from dlrm.config.moments import MomentsConfig, VarianceReductionConfig
from dlrm.config.optimizers import (
    STATE_PER_PARAMETER,
    AveragingConfig,
    DenseOptimizerConfig,
    ParameterGroupConfig,
    TableOptimizerConfig,
    compute_peak_rate,
    is_averaging,
)
from dlrm.config.preconditioner import PreconditionerConfig
from dlrm.config.presets import BATCH_FIELD, PRESETS, get_min_steps, list_scaling
from dlrm.config.pruning import PruningConfig
from dlrm.config.resources import COMPILE_FROM_SAMPLES, DnsLabel, DnsName, KubernetesConfig, ResourcesConfig
from dlrm.config.schedule import ScheduleConfig
from dlrm.config.schema import CRITEO_SCHEMA, CategoricalColumn, DenseColumn, LabelColumn, SchemaConfig
from dlrm.config.stages import (
    BatchStage,
    GrownBatch,
    compute_full_rows,
    compute_period,
    count_run_rows,
    count_validation_rows,
    list_stages,
)
from dlrm.config.tasks import TaskConfig, TaskSharingConfig, find_parents, find_unlabelled_task
from dlrm.config.trackers import MlflowConfig, TrackersConfig, WandbConfig
from dlrm.config.warm_start_fit import find_warm_start_faults, replace_warm_start_source
