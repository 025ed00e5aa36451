// SPDX-License-Identifier: GPL-2.0

//! Random choices, and inputs with random mistakes in them, for tests.
//!
//! Not libFuzzer: what is fuzzed with this are small parsers and arithmetic, of which a corpus that has
//! every kind of line reaches all branches; it needs no nightly compiler and no program that finds
//! other inputs in every run; and a failure is seen again by running the test again. `FUZZ_RUNS` in the
//! environment makes it longer. Coverage: `RUSTFLAGS=-Cinstrument-coverage cargo test fuzz`.

/// SplitMix64: a few lines, and good enough to choose.
pub struct Random(u64);

impl Random {
    /// Begins with `seed`: the same seed, the same choices.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One of `from`.
    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// How many inputs to try.
pub fn runs() -> u64 {
    let wanted = std::env::var("FUZZ_RUNS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

/// An input of `corpus` with some mistakes in it: bytes changed, left out, put in or repeated, words of
/// `words` put in, parts of other inputs put behind.
pub fn mutated(random: &mut Random, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let pick = |random: &mut Random| {
        let index = random.below(corpus.len().max(1) as u64) as usize;
        corpus.get(index).cloned().unwrap_or_default()
    };
    let mut input = pick(random);
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let end = (at + random.below(16) as usize).min(input.len());
        match random.below(8) {
            0 if at < input.len() => input[at] = random.next() as u8,
            1 if at < input.len() => input[at] ^= 1 << random.below(8),
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            4 => input.truncate(at),
            5 => {
                let other = pick(random);
                let from = random.below(other.len() as u64 + 1) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 => input.insert(
                at,
                b"0123456789abcdefx-,.: #=\n\t\""[random.below(27) as usize],
            ),
            _ if !words.is_empty() => {
                let word = random.choose(words).bytes();
                input.splice(at..at, word);
            }
            _ => {}
        }
    }
    // Longer ones are slower, and no worse.
    input.truncate(1 << 14);
    input
}

/// The files of a folder, in the order of their names.
///
/// # Panics
///
/// If there are none: then there is nothing to begin with.
pub fn corpus(folder: impl AsRef<std::path::Path>) -> Vec<Vec<u8>> {
    let folder = folder.as_ref();
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|e| e.expect("can be read").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    let read = |path| std::fs::read(path).expect("can be read");
    paths.iter().map(read).collect()
}
