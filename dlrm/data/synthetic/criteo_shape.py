"""Names and numbers of the columns of Criteo's logs."""

from dlrm.config import CRITEO_SCHEMA

DENSE_NAMES = tuple(column.name for column in CRITEO_SCHEMA.dense)
FEATURE_NAMES = tuple(column.name for column in CRITEO_SCHEMA.categorical)
NUM_DENSE, NUM_FEATURES = len(DENSE_NAMES), len(FEATURE_NAMES)
