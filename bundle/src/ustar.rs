//! Headers of tar archives: ustar, and a PAX header only before what ustar cannot say.

/// The unit of an archive, in bytes.
pub(crate) const BLOCK: usize = 512;

/// The latest time that an octal ustar field holds, in seconds since 1970.
pub(crate) const MAX_MTIME: u64 = 0o77_777_777_777;

/// The largest size that an octal ustar field holds, in bytes.
const MAX_SIZE: u64 = 0o77_777_777_777;

/// Whatever precedes the content of one entry: a header, with a PAX header before it where that is needed. `name` ends
/// with a slash for a directory; `mtime` is at most [`MAX_MTIME`].
pub(crate) fn header(name: &[u8], kind: Kind<'_>, mode: u32, size: u64, mtime: u64) -> Vec<u8> {
    let mut header = Header::new(kind.flag(), mode, size, mtime);
    let mut records = Vec::new();
    if !header.set_name(name) {
        pax_record(&mut records, "path", name);
    }
    if let Kind::Symlink(target) = kind
        && !header.set_link(target)
    {
        pax_record(&mut records, "linkpath", target);
    }
    if size > MAX_SIZE {
        pax_record(&mut records, "size", size.to_string().as_bytes());
    }
    let mut bytes = Vec::new();
    if !records.is_empty() {
        let mut pax = Header::new(b'x', 0o644, records.len() as u64, mtime);
        pax.set_name(b"PaxHeaders/entry");
        bytes.extend_from_slice(&pax.sealed());
        records.resize(records.len().next_multiple_of(BLOCK), 0);
        bytes.append(&mut records);
    }
    bytes.extend_from_slice(&header.sealed());
    bytes
}

/// What an entry is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link to this.
    Symlink(&'a [u8]),
}

impl Kind<'_> {
    fn flag(self) -> u8 {
        match self {
            Kind::File => b'0',
            Kind::Symlink(_) => b'2',
            Kind::Dir => b'5',
        }
    }
}

/// A ustar header (POSIX.1-2017, pax, "ustar Interchange Format"). Owner fields are zero and their names empty.
struct Header([u8; BLOCK]);

impl Header {
    fn new(flag: u8, mode: u32, size: u64, mtime: u64) -> Self {
        let mut header = Self([0; BLOCK]);
        header.set_octal(100, 7, u64::from(mode));
        header.set_octal(108, 7, 0);
        header.set_octal(116, 7, 0);
        // With a PAX size the ustar field is unused; zero is what every reader can parse.
        header.set_octal(124, 11, if size > MAX_SIZE { 0 } else { size });
        header.set_octal(136, 11, mtime);
        header.0[156] = flag;
        header.0[257..265].copy_from_slice(b"ustar\x0000");
        header.set_octal(329, 7, 0);
        header.set_octal(337, 7, 0);
        header
    }

    /// False when neither `name` nor `prefix/name` holds it: the name field is cut then, and a PAX record needed.
    fn set_name(&mut self, name: &[u8]) -> bool {
        if name.len() <= 100 {
            self.0[..name.len()].copy_from_slice(name);
            return true;
        }
        let slash = |at: &usize| name[*at] == b'/' && *at + 1 < name.len();
        let split = (name.len() - 101..name.len().min(156)).rev().find(slash);
        if let Some(at) = split {
            self.0[345..345 + at].copy_from_slice(&name[..at]);
            self.0[..name.len() - at - 1].copy_from_slice(&name[at + 1..]);
            return true;
        }
        self.0[..100].copy_from_slice(&name[..100]);
        false
    }

    fn set_link(&mut self, target: &[u8]) -> bool {
        let fits = target.len().min(100);
        self.0[157..157 + fits].copy_from_slice(&target[..fits]);
        fits == target.len()
    }

    fn set_octal(&mut self, at: usize, digits: usize, value: u64) {
        let text = format!("{value:0digits$o}");
        self.0[at..at + digits].copy_from_slice(text.as_bytes());
    }

    /// The bytes, with the checksum over them.
    fn sealed(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        self.set_octal(148, 6, sum);
        self.0[154] = 0;
        self.0
    }
}

/// Appends `"<length> key=value\n"`, where the length counts itself.
fn pax_record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_lengths_count_themselves() {
        for length in [1, 86, 87, 88, 89, 90, 984, 985, 986, 987] {
            let mut records = Vec::new();
            pax_record(&mut records, "path", &vec![b'n'; length]);
            let stated: usize = std::str::from_utf8(&records).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(stated, records.len());
        }
    }

    #[test]
    fn sizes_beyond_ustar() {
        assert_eq!(header(b"f", Kind::File, 0o644, MAX_SIZE, 0).len(), BLOCK);
        let large = header(b"f", Kind::File, 0o644, MAX_SIZE + 1, 0);
        assert_eq!(large.len(), 3 * BLOCK);
        assert!(large[BLOCK..].starts_with(b"19 size=8589934592\n"));
    }
}
