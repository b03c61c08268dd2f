//! As much of RFC 6455 as one text takes: the answer to the key, and an echo of one frame.

use std::io::{self, Read, Write};

/// What the server proves with that it understood: SHA-1 of the key and a constant, in base64.
pub fn answer_to(key: &str) -> String {
    base64(&sha1(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes()))
}

/// Reads one short masked frame, sends its text back, and says goodbye.
pub fn echo(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let mut head = [0; 6];
    stream.read_exact(&mut head)?;
    let mut text = vec![0; usize::from(head[1] & 0x7f)];
    stream.read_exact(&mut text)?;
    text.iter_mut().zip(head[2..].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    stream.write_all(&[0x81, text.len() as u8])?;
    stream.write_all(&text)?;
    stream.write_all(&[0x88, 2, 3, 0xe8])?;
    stream.flush()
}

fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks(64) {
        let mut words: Vec<u32> =
            block.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four bytes"))).collect();
        for at in 16..80 {
            words.push((words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in words.into_iter().enumerate() {
            let (mixed, constant) = match at / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        state = [a, b, c, d, e]
            .iter()
            .zip(state)
            .map(|(new, old)| new.wrapping_add(old))
            .collect::<Vec<_>>()
            .try_into()
            .expect("five words");
    }
    let mut sum = [0; 20];
    sum.chunks_mut(4).zip(state).for_each(|(out, word)| out.copy_from_slice(&word.to_be_bytes()));
    sum
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().chain(&[0, 0]).take(3).fold(0_usize, |number, byte| number << 8 | usize::from(*byte));
        for at in 0..4 {
            let digit = char::from(DIGITS[number >> (18 - 6 * at) & 63]);
            text.push(if at <= three.len() { digit } else { '=' });
        }
    }
    text
}

/// The example of RFC 6455, section 1.3.
#[test]
fn the_rfcs_example() {
    assert_eq!(answer_to("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}
