// Messages of random sizes, cut at random places: included by the probe, which may use nothing but std, and by `tests/run_stdio.rs`.

/// A stream of lines that begin as messages do, `amount` bytes at least, which the seed decides.
struct Stream {
    state: u64,
    left: u64,
    /// What is written of, over and over.
    text: Vec<u8>,
    /// Bytes of the message under way that are still to come.
    of_message: usize,
    chunk: Vec<u8>,
}

impl Stream {
    /// The largest message, most are far smaller.
    const LARGEST: u64 = 1 << 20;

    fn new(seed: u64, amount: u64) -> Stream {
        let mut stream = Stream { state: seed, left: amount, text: Vec::new(), of_message: 0, chunk: Vec::new() };
        // No line end, no quote.
        stream.text = (0..Stream::LARGEST * 2).map(|_| b"0123456789abcdef {}[]:,\\u<&>./-+"[(stream.next() % 32) as usize]).collect();
        stream
    }

    /// xorshift64.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// What is written at once next: from one byte to several messages. The last one ends a message.
    fn chunk(&mut self) -> Option<&[u8]> {
        if self.left == 0 && self.of_message == 0 {
            return None;
        }
        self.chunk.clear();
        let mut room = (1 << (self.next() % 19)) + (self.next() % 97) as usize;
        while room > 0 && (self.left > 0 || self.of_message > 0) {
            if self.of_message == 0 {
                self.chunk.extend(b"{\"");
                // Sizes of all magnitudes up to the largest.
                let most = (Stream::LARGEST >> (self.next() % 15)).max(64);
                self.of_message = (self.next() % most) as usize + 1;
                self.left = self.left.saturating_sub(self.of_message as u64 + 3);
            }
            let part = room.min(self.of_message);
            let from = (self.next() % (Stream::LARGEST * 2 - part as u64)) as usize;
            self.chunk.extend_from_slice(&self.text[from..from + part]);
            self.of_message -= part;
            room -= part;
            if self.of_message == 0 {
                self.chunk.push(b'\n');
            }
        }
        Some(&self.chunk)
    }
}

/// A checksum that is quick to compute and hangs on every byte and its place: FNV-1a over words of eight bytes, and turned.
struct Sum(u64, [u8; 8], usize);

impl Sum {
    fn new() -> Sum {
        Sum(0xcbf2_9ce4_8422_2325, [0; 8], 0)
    }

    /// A word that lacks bytes waits for them.
    fn add(&mut self, mut bytes: &[u8]) {
        while self.2 > 0 && !bytes.is_empty() {
            self.1[self.2] = bytes[0];
            self.2 = (self.2 + 1) % 8;
            bytes = &bytes[1..];
            if self.2 == 0 {
                self.word(u64::from_le_bytes(self.1));
            }
        }
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        for word in words {
            self.word(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
        self.1[..rest.len()].copy_from_slice(rest);
        if self.2 == 0 {
            self.2 = rest.len();
        }
    }

    fn of_all(mut self) -> u64 {
        for at in 0..self.2 {
            self.word(u64::from(self.1[at]));
        }
        self.0
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).rotate_left(23).wrapping_mul(0x100_0000_01b3);
    }
}
