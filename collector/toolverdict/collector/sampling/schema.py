"""The JSON Schema of the sampling policy, for editors.

``sampling.schema.json`` beside this file is what :func:`as_text` makes, published. It says what an
editor can know; reading the file checks more.
"""

import json
from importlib.resources import files
from typing import Final

from toolverdict.collector.sampling.policy import SamplingPolicy

SCHEMA_ID: Final = "urn:toolverdict:sampling:1"


def as_text() -> str:
    """The schema as it is to be published, made of the models."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **SamplingPolicy.model_json_schema(mode="validation"),
        "title": "toolverdict sampling policy, version 1",
    }
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def published() -> str:
    """The text of the schema that is shipped."""
    return files(__package__).joinpath("sampling.schema.json").read_text(encoding="utf-8")
