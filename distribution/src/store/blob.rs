//! Blobs: hashed while they arrive, and hashed again when they are opened.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use super::Store;
use crate::lock::Turn;
use crate::system::{self, DirBuilderExt as _, FileExt as _};
use crate::{Algorithm, Descriptor, Digest, Error, Hasher, MAX_CONFIG, MAX_MANIFEST, Result, disk};

const CHUNK: usize = 256 << 10;

/// Something whose content has been compared with its digest; only the store makes one.
#[derive(Debug)]
pub struct Verified<T>(T);

/// An open blob.
#[derive(Debug)]
pub struct Blob {
    file: File,
    descriptor: Descriptor,
}

impl Store {
    /// Takes in a blob from `reader`, hashed while it arrives; nothing is seen of it until all of it is right.
    ///
    /// # Errors
    /// [`Error::Verification`] for other, missing or surplus bytes, [`Error::Broken`] where the reader fails; the
    /// store is then as before.
    pub fn ingest(&self, reader: impl Read, want: &Descriptor) -> Result<Verified<Blob>> {
        self.ingest_followed(reader, want, |_, _| ())
    }

    /// The same, and tells of each piece once it is in the file: the file, and where in it the piece is. Nobody has compared
    /// it with anything then.
    pub(crate) fn ingest_followed(
        &self,
        mut reader: impl Read,
        want: &Descriptor,
        mut follow: impl FnMut(&File, Range<u64>),
    ) -> Result<Verified<Blob>> {
        let mut writer = self.writer_by(want.digest.algorithm())?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Broken { digest: want.digest.clone(), source }),
            };
            let before = writer.size;
            writer.append(&buffer[..count])?;
            if writer.size > want.size {
                return Err(differs(want, format!("longer than the {} bytes that were promised", want.size)));
            }
            follow(writer.file(), before..writer.size);
        }
        if writer.size < want.size {
            return Err(differs(want, format!("{} of {} bytes arrived", writer.size, want.size)));
        }
        let (file, _) = writer.land(Some(want))?;
        Ok(Verified(Blob { file, descriptor: want.clone() }))
    }

    /// Stores `bytes` and describes them.
    pub fn put(&self, bytes: &[u8], media_type: &str) -> Result<Descriptor> {
        let mut writer = self.writer()?;
        writer.append(bytes)?;
        writer.finish(media_type)
    }

    /// A blob to be written piece by piece, of which the digest is not known yet.
    pub fn writer(&self) -> Result<BlobWriter<'_>> {
        self.writer_by(Algorithm::Sha256)
    }

    fn writer_by(&self, algorithm: Algorithm) -> Result<BlobWriter<'_>> {
        self.before_writing();
        let (file, path) = disk::scratch_file(&self.at("tmp"))?;
        Ok(BlobWriter { store: self, file: Some(file), path, hasher: Hasher::by(algorithm), size: 0 })
    }

    /// Says whether a blob of that digest and size is there, without reading it.
    pub fn contains(&self, descriptor: &Descriptor) -> bool {
        fs::metadata(self.blob_path(&descriptor.digest)).is_ok_and(|m| m.is_file() && m.len() == descriptor.size)
    }

    /// Opens a blob and reads all of it once to compare its digest and size; none where it is not there.
    ///
    /// # Errors
    /// [`Error::Damaged`] where it differs; it is then set aside, so that it can be fetched anew.
    pub fn blob(&self, descriptor: &Descriptor) -> Result<Option<Verified<Blob>>> {
        let Some((file, size)) = self.open_blob(&descriptor.digest)? else { return Ok(None) };
        self.check(&file, size, &descriptor.digest)?;
        if size != descriptor.size {
            return Err(differs(descriptor, format!("it has {size} bytes, not the {} promised", descriptor.size)));
        }
        Ok(Some(Verified(Blob { file, descriptor: descriptor.clone() })))
    }

    /// Removes a blob that was needed for a moment. Whoever holds it open goes on.
    pub(crate) fn drop_blob(&self, descriptor: &Descriptor) {
        let _ = fs::remove_file(self.blob_path(&descriptor.digest));
    }

    /// Waits until no other process or thread fetches that blob; look again whether it is there now.
    pub fn lock_blob(&self, digest: &Digest) -> Result<BlobLock> {
        Turn::wait(self.at("locks").join(format!("blob-{}", digest.hex()))).map(BlobLock)
    }

    /// The verified bytes of a manifest or index of which only the digest is known.
    pub(crate) fn manifest(&self, digest: &Digest) -> Result<Option<Vec<u8>>> {
        let Some((file, size)) = self.open_blob(digest)? else { return Ok(None) };
        if size > MAX_MANIFEST as u64 {
            let why = format!("{size} bytes, at most {MAX_MANIFEST} are read as a manifest");
            return Err(Error::Verification { what: digest.to_string(), why });
        }
        let bytes = read_all(&file, size, digest)?;
        self.judge(&Digest::by(digest.algorithm(), &bytes), digest)?;
        Ok(Some(bytes))
    }

    /// The directory of SHA-256 is there from the store's beginning.
    fn make_blobs_by(&self, algorithm: Algorithm) -> Result<()> {
        let dir = self.blobs_by(algorithm);
        match algorithm {
            Algorithm::Sha256 => Ok(()),
            Algorithm::Sha512 => {
                DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(Error::store("create", &dir))
            }
        }
    }

    fn open_blob(&self, digest: &Digest) -> Result<Option<(File, u64)>> {
        let path = self.blob_path(digest);
        match File::open(&path) {
            Ok(file) => {
                let size = file.metadata().map_err(Error::store("read", &path))?.len();
                Ok(Some((file, size)))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::store("open", &path)(e)),
        }
    }

    fn check(&self, file: &File, size: u64, want: &Digest) -> Result<()> {
        let mut hasher = Hasher::by(want.algorithm());
        let mut reader = BlobReader { file, offset: 0 };
        // Most blobs that a start reads are small: a large buffer costs it a tenth of a millisecond each.
        let mut buffer = vec![0; CHUNK.min(room_for(size))];
        loop {
            match reader.read(&mut buffer).map_err(Error::store("read", &self.blob_path(want)))? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        self.judge(&hasher.finish().0, want)
    }

    fn judge(&self, is: &Digest, want: &Digest) -> Result<()> {
        if is == want {
            return Ok(());
        }
        disk::discard(&self.blob_path(want), &self.at("trash"))?;
        Err(Error::Damaged(want.clone()))
    }
}

impl Verified<Blob> {
    /// What the blob is.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// Reads the blob from its beginning; readers do not disturb one another.
    pub fn reader(&self) -> BlobReader<'_> {
        self.reader_at(0)
    }

    /// Reads the blob from a byte on.
    pub(crate) fn reader_at(&self, offset: u64) -> BlobReader<'_> {
        BlobReader { file: &self.0.file, offset }
    }

    /// The same file opened anew, from its beginning, for another process to read.
    ///
    /// # Errors
    /// The system's.
    pub fn reopen(&self) -> io::Result<File> {
        system::reopen(&self.0.file)
    }

    /// The whole content, for configurations and manifests.
    ///
    /// # Errors
    /// Where it is larger than [`MAX_CONFIG`].
    pub fn bytes(&self) -> Result<Vec<u8>> {
        if self.0.descriptor.size > MAX_CONFIG as u64 {
            return Err(differs(&self.0.descriptor, format!("at most {MAX_CONFIG} bytes are read at once")));
        }
        read_all(&self.0.file, self.0.descriptor.size, &self.0.descriptor.digest)
    }
}

/// Reads an open blob by position, from the descriptor that was verified.
#[derive(Debug)]
pub struct BlobReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// A blob on its way in; dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct BlobWriter<'a> {
    store: &'a Store,
    file: Option<File>,
    path: PathBuf,
    hasher: Hasher,
    size: u64,
}

impl BlobWriter<'_> {
    /// Brings the blob to its final name and describes it.
    pub fn finish(self, media_type: &str) -> Result<Descriptor> {
        self.land(None).map(|(_, (digest, size))| Descriptor::new(media_type, digest, size))
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("present until it lands")
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(Error::store("write", &self.path))
    }

    fn land(mut self, want: Option<&Descriptor>) -> Result<(File, (Digest, u64))> {
        let (digest, size) = std::mem::take(&mut self.hasher).finish();
        if let Some(want) = want
            && want.digest != digest
        {
            return Err(differs(want, format!("other bytes arrived, their digest is {digest}")));
        }
        let file = self.file.take().expect("the file is taken here alone");
        if self.store.contains(&Descriptor::new("", digest.clone(), size)) {
            return Ok((file, (digest, size)));
        }
        self.store.make_blobs_by(digest.algorithm())?;
        match disk::land(&file, &self.path, &self.store.blob_path(&digest)) {
            // Windows may replace no file that is open: another has brought it meanwhile.
            Err(_) if cfg!(windows) && self.store.contains(&Descriptor::new("", digest.clone(), size)) => {
                return Ok((file, (digest, size)));
            }
            landed => landed?,
        }
        // Its scratch name is free again and may already be another's.
        self.path = PathBuf::new();
        Ok((file, (digest, size)))
    }
}

impl Write for BlobWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file().write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BlobWriter<'_> {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The turn of one fetcher of a blob, or of one maker of a package.
#[derive(Debug)]
pub struct BlobLock(#[expect(dead_code, reason = "held, not read")] Turn);

/// One more than there are: the end is seen without asking for more room.
fn room_for(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1)
}

/// `size` is at most [`MAX_CONFIG`].
fn read_all(file: &File, size: u64, digest: &Digest) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(room_for(size));
    let read = BlobReader { file, offset: 0 }.read_to_end(&mut bytes);
    read.map_err(|source| Error::Broken { digest: digest.clone(), source })?;
    Ok(bytes)
}

fn differs(want: &Descriptor, why: String) -> Error {
    Error::Verification { what: want.digest.to_string(), why }
}
