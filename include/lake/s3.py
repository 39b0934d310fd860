"""The URI of a lake on S3, and the variables of AWS's tools.

Standard library only: set-up and the scheduler import this.
"""

import os
import re

# Hadoop, delta-rs and Arrow take these for the same place; each reads %, # and blanks in its own way.
PLAIN = re.compile(r"s3a?://[\w.-]+(/[\w.=+@-]+)*/?", re.ASCII)
SCHEMES = ("s3://", "s3a://")


def is_s3(root: str) -> bool:
    """True if a lake's root is on S3, or on a store that speaks its protocol."""
    return root.startswith(SCHEMES)


def is_plain(root: str) -> bool:
    """True if Hadoop, delta-rs and Arrow find the same place at a lake's root on S3."""
    return PLAIN.fullmatch(root) is not None


def hadoop_uri(root: str) -> str:
    """Return `root` with Hadoop's name for S3, which all but Arrow know."""
    return f"s3a://{root.partition('://')[2]}" if is_s3(root) else root


def arrow_uri(uri: str) -> str:
    """Return `uri` as Arrow spells it, with the region, for which it would ask AWS."""
    if not is_s3(uri):
        return uri
    region = s3_region()
    return f"s3://{uri.partition('://')[2]}" + (f"?region={region}" if region else "")


def s3_endpoint() -> str | None:
    """Return the address of a store of one's own; None for AWS."""
    return os.environ.get("AWS_ENDPOINT_URL")


def s3_region() -> str | None:
    """Return the region; a store of one's own seldom has any, but is asked by one."""
    found = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return found or ("us-east-1" if s3_endpoint() else None)


def is_tls_missed() -> bool:
    """True if the store's address is without TLS, which delta-rs takes only with AWS_ALLOW_HTTP."""
    is_plain = (s3_endpoint() or "").startswith("http://")
    return is_plain and not os.environ.get("AWS_ALLOW_HTTP")
