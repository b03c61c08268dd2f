//! One tar header of 512 bytes: v7, POSIX ustar or old GNU.

use super::error::{Code, Result, Stop};

/// A header whose checksum is right.
pub(super) struct Header {
    block: [u8; 512],
}

impl Header {
    pub(super) fn read(block: [u8; 512]) -> Result<Header> {
        let header = Header { block };
        let blank = |i: usize| (148..156).contains(&i);
        let sum: i128 = block.iter().enumerate().map(|(i, b)| if blank(i) { 32 } else { i128::from(*b) }).sum();
        match number(&block[148..156]) {
            Some(stated) if stated == sum => Ok(header),
            _ => Err(header.wrong("its checksum is wrong")),
        }
    }

    /// The name, with the prefix of ustar.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = until_nul(&self.block[..100]);
        let prefix = until_nul(&self.block[345..500]);
        // In GNU headers, which are marked `ustar  `, other fields stand there.
        if self.block[257..263] != *b"ustar\0" || prefix.is_empty() {
            return name.to_vec();
        }
        [prefix, b"/", name].concat()
    }

    pub(super) fn link(&self) -> Vec<u8> {
        until_nul(&self.block[157..257]).to_vec()
    }

    pub(super) fn typeflag(&self) -> u8 {
        self.block[156]
    }

    /// The lower twelve bits of the mode.
    pub(super) fn mode(&self) -> Result<u32> {
        let mode = number(&self.block[100..108]).ok_or_else(|| self.wrong("its mode is no number"))?;
        Ok((mode & 0o7777) as u32)
    }

    pub(super) fn size(&self) -> Result<u64> {
        let size = number(&self.block[124..136]).and_then(|size| u64::try_from(size).ok());
        size.filter(|size| *size <= i64::MAX as u64).ok_or_else(|| self.wrong("its size is no number"))
    }

    /// Seconds since 1970, 0 where it is no number.
    pub(super) fn mtime(&self) -> i64 {
        let clamp = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        number(&self.block[136..148]).map_or(0, clamp)
    }

    /// Major and minor number of a device are zero.
    pub(super) fn is_device_zero(&self) -> bool {
        number(&self.block[329..337]) == Some(0) && number(&self.block[337..345]) == Some(0)
    }

    fn wrong(&self, why: &str) -> Stop {
        Stop::refused(Code::Header, why).of(&self.name())
    }
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits between blanks and NULs, or GNU's base 256 in two's complement.
/// Anything else is no number: readers disagree on what it could be.
fn number(field: &[u8]) -> Option<i128> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        let sign = if first & 0x40 != 0 { -1 } else { 0 };
        let start = (sign << 7) | i128::from(first & 0x7f);
        return Some(field[1..].iter().fold(start, |n, byte| (n << 8) | i128::from(*byte)));
    }
    let filler = |byte: &u8| matches!(byte, b' ' | 0);
    let digits = field.iter().skip_while(|byte| filler(byte));
    let mut number = 0;
    for byte in digits.clone().take_while(|byte| !filler(byte)) {
        match byte {
            b'0'..=b'7' => number = number * 8 + i128::from(byte - b'0'),
            _ => return None,
        }
    }
    digits.skip_while(|byte| !filler(byte)).all(filler).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let cases: [(&[u8], Option<i128>); 13] = [
            (b"0000644\0", Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"00000644", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"0000648\0", None),
            (b"-000644\0", None),
            (b"+000644\0", None),
            (b"6 44\0\0\0\0", None),
            (b"64\x004\0\0\0\0", None),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX as i128)),
        ];
        for (field, want) in cases {
            assert_eq!(number(field), want, "{}", field.escape_ascii());
        }
    }
}
