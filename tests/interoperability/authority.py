"""A certificate authority, a log of certificates and a transparency log, as sigstore has them, made anew each time.

authority.py DIRECTORY: reads `statement.json` there, and writes `trusted_root.json`, and a bundle `NAME.json` about that statement for
each name of WANTED.
"""

import base64
import datetime
import hashlib
import json
import struct
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
IN_TOTO = "application/vnd.in-toto+json"
IDENTITY = "https://git.test/acme/tool/.ci/release.yaml@refs/heads/main"
# What runs on GitHub is named so, and its certificate says from which repository by which workflow.
GITHUB = "https://token.actions.githubusercontent.com"
REPOSITORY, WORKFLOW = 12, 18
TOKENS = "https://tokens.test"
# Certificates live for ten minutes, and are looked at when they have ended.
BEGIN = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) - datetime.timedelta(hours=2)
END = BEGIN + datetime.timedelta(minutes=10)
SIGNED = int(BEGIN.timestamp()) + 60


def b64(data):
    return base64.b64encode(data).decode()


def spki(key):
    encoding = serialization.Encoding.DER
    return key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def sha256(data):
    return hashlib.sha256(data).digest()


class Log:
    """What signs by one key and is known by the hash of it."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = sha256(spki(self.key))

    def sign(self, message):
        return self.key.sign(message, ec.ECDSA(hashes.SHA256()))

    def trusted(self, url):
        public = {"rawBytes": b64(spki(self.key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
        public["validFor"] = {"start": "2020-01-01T00:00:00Z"}
        return {"baseUrl": url, "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": {"keyId": b64(self.id)}}


class Authority:
    """Issues certificates that name somebody."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority.test")])
        year = datetime.timedelta(days=365)
        usage = dict.fromkeys(
            ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "encipher_only", "decipher_only"], False)
        builder = x509.CertificateBuilder().subject_name(self.name).issuer_name(self.name)
        builder = builder.public_key(self.key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(BEGIN - year).not_valid_after(BEGIN + year)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), False)
        self.certificate = builder.sign(self.key, hashes.SHA256())

    def issue(self, public, name, tokens, log, claims):
        usage = dict.fromkeys(
            ["content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
             "encipher_only", "decipher_only"], False)
        builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(self.name)
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(BEGIN).not_valid_after(END)
        builder = builder.add_extension(x509.KeyUsage(digital_signature=True, **usage), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(own, False)
        kind = x509.RFC822Name if "@" in name and "://" not in name else x509.UniformResourceIdentifier
        builder = builder.add_extension(x509.SubjectAlternativeName([kind(name)]), True)
        text = tokens.encode()
        builder = builder.add_extension(x509.UnrecognizedExtension(ISSUER, text), False)
        string = bytes([0x0C, len(text)]) + text
        builder = builder.add_extension(x509.UnrecognizedExtension(ISSUER_V2, string), False)
        for number, claim in claims.items():
            claim = claim.encode()
            of_fulcio = x509.ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
            builder = builder.add_extension(x509.UnrecognizedExtension(of_fulcio, bytes([0x0C, len(claim)]) + claim), False)
        before = builder.sign(self.key, hashes.SHA256())
        if log is None:
            return before
        # RFC 6962: what the log signs is the certificate without what it says of it.
        tbs = before.tbs_certificate_bytes
        time = SIGNED * 1000
        signed = b"\0\0" + struct.pack(">Q", time) + b"\0\1" + sha256(spki(self.key))
        signature = log.sign(signed + struct.pack(">I", len(tbs))[1:] + tbs + b"\0\0")
        sct = b"\0" + log.id + struct.pack(">Q", time) + b"\0\0" + b"\4\3" + struct.pack(">H", len(signature)) + signature
        scts = struct.pack(">H", len(sct)) + sct
        scts = struct.pack(">H", len(scts)) + scts
        octets = bytes([0x04, len(scts)]) + scts
        builder = builder.add_extension(x509.UnrecognizedExtension(SCT_LIST, octets), False)
        return builder.sign(self.key, hashes.SHA256())


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def entry(log, statement, signature, certificate, time):
    """One of two leaves of the transparency log, with its promise and its proof."""
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    spec = {
        "envelopeHash": {"algorithm": "sha256", "value": sha256(b"as it was sent").hex()},
        "payloadHash": {"algorithm": "sha256", "value": sha256(statement).hex()},
        "signatures": [{"signature": b64(signature), "verifier": b64(pem)}],
    }
    body = canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
    promised = {"body": b64(body), "integratedTime": time, "logID": log.id.hex(), "logIndex": 1}
    other = sha256(b"\0another entry")
    root = sha256(b"\1" + other + sha256(b"\0" + body))
    note = f"log.test - 1\n2\n{b64(root)}\n"
    checkpoint = f"{note}\n\u2014 log.test {b64(log.id[:4] + log.sign(note.encode()))}\n"
    return {
        "logIndex": "1",
        "logId": {"keyId": b64(log.id)},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": str(time),
        "inclusionPromise": {"signedEntryTimestamp": b64(log.sign(canonical(promised)))},
        "inclusionProof": {
            "logIndex": "1", "rootHash": b64(root), "treeSize": "2", "hashes": [b64(other)],
            "checkpoint": {"envelope": checkpoint},
        },
        "canonicalizedBody": b64(body),
    }


def bundle(statement, authority, certificates, log, name=IDENTITY, tokens=TOKENS, time=SIGNED, claims={}):
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.issue(key.public_key(), name, tokens, certificates, claims)
    pae = f"DSSEv1 {len(IN_TOTO)} {IN_TOTO} {len(statement)} ".encode() + statement
    signature = key.sign(pae, ec.ECDSA(hashes.SHA256()))
    raw = certificate.public_bytes(serialization.Encoding.DER)
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "certificate": {"rawBytes": b64(raw)},
            "tlogEntries": [entry(log, statement, signature, certificate, time)],
            "timestampVerificationData": {},
        },
        "dsseEnvelope": {
            "payload": b64(statement), "payloadType": IN_TOTO, "signatures": [{"sig": b64(signature), "keyid": ""}],
        },
    }


def built(statement, authority, certificates, log, repository, time=SIGNED):
    """By a workflow of that repository of GitHub's."""
    repository = f"https://github.com/{repository}"
    workflow = f"{repository}/.github/workflows/release.yml@refs/tags/v1"
    claims = {REPOSITORY: repository, WORKFLOW: workflow}
    return bundle(statement, authority, certificates, log, workflow, GITHUB, time, claims)


def main(directory):
    with open(f"{directory}/statement.json", "rb") as file:
        statement = file.read()
    authority, certificates, log = Authority(), Log(), Log()
    parts = (authority, certificates, log)
    chain = {"certificates": [{"rawBytes": b64(authority.certificate.public_bytes(serialization.Encoding.DER))}]}
    root = {
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": [log.trusted("https://log.test")],
        "certificateAuthorities": [{
            "subject": {"organization": "authority.test", "commonName": "authority.test"},
            "uri": "https://authority.test", "certChain": chain, "validFor": {"start": "2020-01-01T00:00:00Z"},
        }],
        "ctlogs": [certificates.trusted("https://certificates.test")],
        "timestampAuthorities": [],
    }
    wanted = {
        "good": bundle(statement, *parts),
        "of-a-person": bundle(statement, *parts, name="ann@acme.test"),
        "another-identity": bundle(statement, *parts, name=IDENTITY.replace("heads/main", "heads/evil")),
        "another-issuer": bundle(statement, *parts, tokens="https://tokens.evil.test"),
        "signed-after-the-end": bundle(statement, *parts, time=int(END.timestamp()) + 1),
        "signed-before-the-begin": bundle(statement, *parts, time=int(BEGIN.timestamp()) - 1),
        "another-authority": bundle(statement, Authority(), certificates, log),
        "another-transparency-log": bundle(statement, authority, certificates, Log()),
        "another-certificate-log": bundle(statement, authority, Log(), log),
        "without-a-word-of-the-certificate-log": bundle(statement, authority, None, log),
        "built": built(statement, *parts, "acme/tool"),
        "built-elsewhere": built(statement, *parts, "evil/tool"),
        "built-after-the-end": built(statement, *parts, "acme/tool", time=int(END.timestamp()) + 1),
        "built-by-another-authority": built(statement, Authority(), certificates, log, "acme/tool"),
        "of-another-statement": bundle(statement.replace(b'"level":2', b'"level":3'), *parts),
    }

    def changed(name, change):
        copy = json.loads(json.dumps(wanted["good"]))
        change(copy)
        wanted[name] = copy

    def of_entry(key):
        return lambda made: made["verificationMaterial"]["tlogEntries"][0].pop(key)

    changed("without-a-promise", of_entry("inclusionPromise"))
    changed("without-a-proof", of_entry("inclusionProof"))
    changed("without-an-entry", lambda made: made["verificationMaterial"].update(tlogEntries=[]))
    theirs = wanted["of-a-person"]["verificationMaterial"]
    changed("the-entry-of-another", lambda made: made["verificationMaterial"].update(tlogEntries=theirs["tlogEntries"]))
    changed("the-certificate-of-another", lambda made: made["verificationMaterial"].update(certificate=theirs["certificate"]))
    changed("another-time", lambda made: made["verificationMaterial"]["tlogEntries"][0].update(integratedTime=str(SIGNED + 1)))
    payload = wanted["of-another-statement"]["dsseEnvelope"]["payload"]
    changed("another-payload", lambda made: made["dsseEnvelope"].update(payload=payload))
    for name, made in [*wanted.items(), ("trusted_root", root)]:
        with open(f"{directory}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(made, file)


main(sys.argv[1])
