//! Which slot of a cluster a store lives in: that of its hash tag.

/// How many slots a cluster has.
const SLOTS: u16 = 16384;

/// The slot of the hash tag `{tag}`: CRC16 (XMODEM) of what stands between the braces.
pub fn slot_of(tag: &str) -> u16 {
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    /// The first is the check value of the standard, the others what `CLUSTER KEYSLOT` answers.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of("user1000"), 3443);
    }
}
