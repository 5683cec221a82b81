#!/bin/sh
# Removes from /opt/dlrm what running the product never reads: headers, libraries to link with, tests of the libraries.
set -eu
cd /opt/dlrm/lib/python3.11/site-packages
rm -rf torch/include torch/share torch/test pyarrow/include pyarrow/src pyarrow/tests
find torch/bin -mindepth 1 ! -name torch_shm_manager -delete
find numpy -type d -name tests -prune -exec rm -rf {} +
find . -name '*.a' -delete
