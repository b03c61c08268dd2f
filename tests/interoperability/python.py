"""The word of securesystemslib: python.py verify ENVELOPE PUBLIC_KEY, python.py sign STATEMENT PRIVATE_KEY ENVELOPE."""

import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey


def read(path):
    with open(path, "rb") as file:
        return file.read()


def verify(envelope, key):
    """Ends with an exception where the key did not sign it, else prints what was signed."""
    own = SSlibKey.from_crypto(load_pem_public_key(read(key)))
    # A key is found by its id, which an envelope in a bundle leaves empty.
    key = SSlibKey("", own.keytype, own.scheme, own.keyval)
    envelope = Envelope.from_dict(json.loads(read(envelope)))
    envelope.verify([key], 1)
    sys.stdout.buffer.write(envelope.payload)


def sign(statement, key, envelope):
    made = Envelope(read(statement), "application/vnd.in-toto+json", {})
    made.sign(CryptoSigner(load_pem_private_key(read(key), None)))
    with open(envelope, "w", encoding="utf-8") as file:
        json.dump(made.to_dict(), file)


{"verify": verify, "sign": sign}[sys.argv[1]](*sys.argv[2:])
