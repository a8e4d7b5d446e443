//! Hashes that stay the same over releases of the compiler, unlike those of the standard library.

/// FNV-1a over `bytes`, started from `seed`.
pub(crate) fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The finalizer of `SplitMix64`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash of an input as records hold it. Never 0, which stands for an operation without input.
#[expect(clippy::cast_possible_truncation, reason = "32 bits are stored")]
pub(crate) fn input_hash(json: &str) -> u32 {
    mix(fnv(0, json.as_bytes())) as u32 | 1
}
