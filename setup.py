"""Packages of the distribution; everything else is in pyproject.toml.

The YAML of `configs/` is installed as the package folder `anchorcontext/_configs`, so that an
installed `anchorcontext` finds it as a checkout does.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["anchorcontext*", "data_prep*"]), "anchorcontext._configs"],
    package_dir={"anchorcontext._configs": "configs"},
    package_data={"anchorcontext._configs": ["**/*.yaml"]},
)
