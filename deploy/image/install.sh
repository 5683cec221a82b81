#!/bin/sh
# Compiles and installs the package into /package, a tree that is laid over the root of an image: install.sh cpu|cuda.
# The environment with the pinned packages is /opt/dlrm; /source is the working directory.
set -eu
python=/opt/dlrm/bin/python
packages=opt/dlrm/lib/python3.11/site-packages

python3.11 -m pip --python $python install --quiet --no-deps --no-index --no-build-isolation --prefix /package/opt/dlrm .
# Not the sources of the working directory, which have no compiled operators.
cd /
export PYTHONPATH=/package/$packages
$python /source/deploy/image/check.py "$1"
$python -m compileall -q /package/$packages

mkdir -p /package/usr/share/doc/dlrm
/opt/sbom/bin/cyclonedx-py environment --pyproject /source/pyproject.toml --output-reproducible \
    --output-file /package/usr/share/doc/dlrm/sbom.json $python
