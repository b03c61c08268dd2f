// The word of @sigstore/verify, @sigstore/bundle and tweetnacl: node node.mjs MODULES VERB ARGS; what is refused ends with 1.
import { createPrivateKey, createPublicKey, scryptSync, sign } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [modules, verb, ...args] = process.argv.slice(2);
const load = createRequire(`${modules}/`);
const read = (path) => readFileSync(path);

const pem = (path) => {
  const [, label, content] = /^-----BEGIN (.*)-----\n([^-]*)-----END/.exec(read(path, 'utf8').toString());
  return { label, content: Buffer.from(content, 'base64') };
};

const verbs = {
  // BUNDLE PUBLIC_KEY: verifies it and prints what was signed.
  verify(bundle, key) {
    const { bundleFromJSON } = load('@sigstore/bundle');
    const { Verifier, toSignedEntity, toTrustMaterial } = load('@sigstore/verify');
    const publicKey = createPublicKey(read(key));
    const root = { mediaType: '', certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
    const trusted = toTrustMaterial(root, () => ({ publicKey, validFor: () => true }));
    const none = { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 };
    const parsed = bundleFromJSON(JSON.parse(read(bundle)));
    new Verifier(trusted, none).verify(toSignedEntity(parsed));
    process.stdout.write(parsed.content.dsseEnvelope.payload);
  },
  // BUNDLE TRUSTED_ROOT IDENTITY ISSUER: verifies one that is signed by a certificate.
  certificate(bundle, root, subjectAlternativeName, issuer) {
    const { bundleFromJSON } = load('@sigstore/bundle');
    const { TrustedRoot } = load('@sigstore/protobuf-specs');
    const { Verifier, toSignedEntity, toTrustMaterial } = load('@sigstore/verify');
    const trusted = toTrustMaterial(TrustedRoot.fromJSON(JSON.parse(read(root))));
    const thresholds = { tlogThreshold: 1, ctlogThreshold: 1, timestampThreshold: 1 };
    const parsed = bundleFromJSON(JSON.parse(read(bundle)));
    const policy = { subjectAlternativeName, extensions: { issuer } };
    new Verifier(trusted, thresholds).verify(toSignedEntity(parsed), policy);
  },
  // STATEMENT PRIVATE_KEY BUNDLE: signs it.
  sign(statement, key, bundle) {
    const { bundleToJSON, toDSSEBundle } = load('@sigstore/bundle');
    const { dsse } = load('@sigstore/core');
    const artifact = read(statement);
    const artifactType = 'application/vnd.in-toto+json';
    const message = dsse.preAuthEncoding(artifactType, artifact);
    const privateKey = createPrivateKey(read(key));
    const algorithm = privateKey.asymmetricKeyType === 'ed25519' ? null : 'sha256';
    const signature = sign(algorithm, message, privateKey);
    const made = toDSSEBundle({ artifact, artifactType, signature, keyHint: 'a hint of another tool' });
    made.mediaType = 'application/vnd.dev.sigstore.bundle.v0.3+json';
    writeFileSync(bundle, JSON.stringify(bundleToJSON(made)));
  },
  // ENCRYPTED_KEY PASSPHRASE PLAIN_KEY: opens a private key as cosign does.
  open(sealed, passphrase, plain) {
    const { secretbox } = load('tweetnacl');
    const { label, content } = pem(sealed);
    const { kdf, cipher, ciphertext } = JSON.parse(content);
    if (label !== 'ENCRYPTED SIGSTORE PRIVATE KEY' || kdf.name !== 'scrypt' || cipher.name !== 'nacl/secretbox') {
      throw new Error('another form');
    }
    const { N, r, p } = kdf.params;
    const key = scryptSync(passphrase, Buffer.from(kdf.salt, 'base64'), 32, { N, r, p, maxmem: 256 * N * r });
    const bytes = (text) => new Uint8Array(Buffer.from(text, 'base64'));
    const opened = secretbox.open(bytes(ciphertext), bytes(cipher.nonce), new Uint8Array(key));
    if (!opened) throw new Error('it does not open');
    const der = createPrivateKey({ key: Buffer.from(opened), format: 'der', type: 'pkcs8' });
    writeFileSync(plain, der.export({ format: 'pem', type: 'pkcs8' }));
  },
  // PLAIN_KEY PASSPHRASE ENCRYPTED_KEY: the other way round, at the cost that cosign 1 took.
  seal(plain, passphrase, sealed) {
    const { secretbox } = load('tweetnacl');
    const [N, r, p] = [32768, 8, 1];
    const [salt, nonce] = [Buffer.alloc(32, 7), Buffer.alloc(24, 9)];
    const key = scryptSync(passphrase, salt, 32, { N, r, p, maxmem: 256 * N * r });
    const der = createPrivateKey(read(plain)).export({ format: 'der', type: 'pkcs8' });
    const ciphertext = Buffer.from(secretbox(new Uint8Array(der), new Uint8Array(nonce), new Uint8Array(key)));
    const text = JSON.stringify({
      kdf: { name: 'scrypt', params: { N, r, p }, salt: salt.toString('base64') },
      cipher: { name: 'nacl/secretbox', nonce: nonce.toString('base64') },
      ciphertext: ciphertext.toString('base64'),
    });
    const lines = Buffer.from(text).toString('base64').replace(/(.{64})/g, '$1\n');
    const label = 'ENCRYPTED COSIGN PRIVATE KEY';
    writeFileSync(sealed, `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`);
  },
};

try {
  verbs[verb](...args);
} catch (error) {
  console.error(`${error.code ?? ''} ${error.message}`);
  process.exit(1);
}
