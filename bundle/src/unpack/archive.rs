//! Archives made by hand, so that the tests can write what no library would.

/// One header and what follows it. The default is an empty file of mode 0644.
pub(super) struct Head {
    block: [u8; 512],
    data: Vec<u8>,
    size: Option<u64>,
    checksum: Checksum,
}

enum Checksum {
    Right,
    Wrong,
}

pub(super) fn head(typeflag: u8, name: impl AsRef<[u8]>) -> Head {
    let mut head = Head { block: [0; 512], data: Vec::new(), size: None, checksum: Checksum::Right };
    head.block[156] = typeflag;
    head.put(0, name.as_ref()).put(100, b"0000644\0").put(136, b"00000000000\0").put(257, b"ustar\x0000")
}

pub(super) fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Head {
    head(b'0', name).data(data)
}

pub(super) fn dir(name: impl AsRef<[u8]>) -> Head {
    head(b'5', name).mode(0o755)
}

pub(super) fn symlink(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Head {
    head(b'2', name).link(target)
}

pub(super) fn hard_link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Head {
    head(b'1', name).link(target)
}

/// An extended header about the next entry.
pub(super) fn pax(records: &[(&str, &[u8])]) -> Head {
    head(b'x', "pax").data(pax_records(records))
}

/// A global extended header.
pub(super) fn pax_global(records: &[(&str, &[u8])]) -> Head {
    head(b'g', "pax").data(pax_records(records))
}

fn pax_records(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 1..).find(|n| n.to_string().len() + rest == *n).unwrap();
        bytes.extend(format!("{length} {key}=").into_bytes());
        bytes.extend(*value);
        bytes.push(b'\n');
    }
    bytes
}

impl Head {
    /// Overwrites bytes of the header.
    pub(super) fn put(mut self, at: usize, bytes: &[u8]) -> Head {
        self.block[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn data(mut self, data: impl AsRef<[u8]>) -> Head {
        self.data = data.as_ref().to_vec();
        self
    }

    pub(super) fn link(self, target: impl AsRef<[u8]>) -> Head {
        self.put(157, target.as_ref())
    }

    pub(super) fn mode(self, mode: u32) -> Head {
        self.put(100, format!("{mode:07o}\0").as_bytes())
    }

    pub(super) fn name(&self) -> &[u8] {
        self.block[..100].split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// States another size than that of the data.
    pub(super) fn size(mut self, size: u64) -> Head {
        self.size = Some(size);
        self
    }

    pub(super) fn wrong_checksum(mut self) -> Head {
        self.checksum = Checksum::Wrong;
        self
    }

    /// The header and its data, filled up to whole blocks.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut block = self.block;
        let size = self.size.unwrap_or(self.data.len() as u64);
        if block[124] == 0 {
            block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        }
        block[148..156].fill(b' ');
        let mut sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        if matches!(self.checksum, Checksum::Wrong) {
            sum += 1;
        }
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut bytes = [&block[..], &self.data].concat();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }
}

/// A whole archive with its end mark.
pub(super) fn tar(heads: &[Head]) -> Vec<u8> {
    let mut bytes = open_tar(heads);
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// An archive without its end mark.
pub(super) fn open_tar(heads: &[Head]) -> Vec<u8> {
    heads.iter().flat_map(Head::bytes).collect()
}
