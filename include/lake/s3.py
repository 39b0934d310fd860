"""What a lake's URI and the variables of AWS's tools say of a lake on S3.

Standard library only: set-up and the scheduler import this.
"""

import os
import re

# What Hadoop, delta-rs and Arrow take for the same place: each reads %, # and blanks in its own way.
PLAIN = re.compile(r"s3a?://[\w.-]+(/[\w.=+@-]+)*/?", re.ASCII)
SCHEMES = ("s3://", "s3a://")


def is_s3(root: str) -> bool:
    """Whether a lake's root is on S3, or on what speaks as it does."""
    return root.startswith(SCHEMES)


def is_plain(root: str) -> bool:
    """Whether all that open a lake's root on S3 find the same place there."""
    return PLAIN.fullmatch(root) is not None


def hadoop_uri(root: str) -> str:
    """`root` with Hadoop's name for S3, which all that opens a lake knows but Arrow."""
    return f"s3a://{root.partition('://')[2]}" if is_s3(root) else root


def arrow_uri(uri: str) -> str:
    """`uri` as Arrow spells it: Hadoop's name for S3 is s3a, and Arrow would ask AWS for the region."""
    if not is_s3(uri):
        return uri
    region = s3_region()
    return f"s3://{uri.partition('://')[2]}" + (f"?region={region}" if region else "")


def s3_endpoint() -> str | None:
    """The address of a store of one's own; None for AWS."""
    return os.environ.get("AWS_ENDPOINT_URL")


def s3_region() -> str | None:
    """A store of one's own seldom has any, but is asked by one."""
    found = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return found or ("us-east-1" if s3_endpoint() else None)


def is_tls_missed() -> bool:
    """Whether the store's address is one that delta-rs takes only when it is told to."""
    is_plain = (s3_endpoint() or "").startswith("http://")
    return is_plain and not os.environ.get("AWS_ALLOW_HTTP")
