//! Which kind each leased job is of: an outcome names its lease and nothing else.
//!
//! An entry comes with a claim and goes with its outcome. Those whose outcome never comes (the lease was lost and nobody
//! said so) go when the book has doubled: by then their leases have run out on the store's own clock, as far as its
//! answers have told it.

use std::collections::HashMap;
use windlass_core::id::{JobId, Token};
use windlass_core::job::Lease;
use windlass_core::time::Timestamp;

/// Below this, nobody looks for entries that are left over.
const SMALL: usize = 4_096;

#[derive(Debug)]
pub(super) struct Book<K> {
    held: HashMap<JobId, Held<K>>,
    /// The latest time of the store that its answers have shown.
    now: Timestamp,
    clean_at: usize,
}

#[derive(Debug)]
struct Held<K> {
    token: Token,
    expires_at: Timestamp,
    kind: K,
}

impl<K> Default for Book<K> {
    fn default() -> Self {
        Self { held: HashMap::new(), now: Timestamp::default(), clean_at: SMALL }
    }
}

impl<K> Book<K> {
    /// The store's clock shows at least this.
    pub(super) fn note_time(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    pub(super) fn add(&mut self, lease: Lease, expires_at: Timestamp, kind: K) {
        if self.held.len() >= self.clean_at {
            let now = self.now;
            self.held.retain(|_, held| held.expires_at >= now);
            self.clean_at = SMALL.max(2 * self.held.len());
        }
        self.held.insert(lease.job, Held { token: lease.token, expires_at, kind });
    }

    pub(super) fn renew(&mut self, lease: Lease, expires_at: Timestamp) {
        if let Some(held) = self.held.get_mut(&lease.job).filter(|held| held.token == lease.token) {
            held.expires_at = expires_at;
        }
    }

    /// Takes out the entry of this very lease.
    pub(super) fn take(&mut self, lease: Lease) -> Option<K> {
        let found = self.held.get(&lease.job).is_some_and(|held| held.token == lease.token);
        if found { self.held.remove(&lease.job).map(|held| held.kind) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(job: u128, token: u64) -> Lease {
        Lease { job: JobId::from_parts(0, job), attempt: 1, token: Token::from_bits(token) }
    }

    #[test]
    fn an_entry_belongs_to_one_lease() {
        let mut book = Book::default();
        book.add(lease(1, 1), Timestamp::from_ms(10), "first");
        assert_eq!(book.take(lease(1, 2)), None, "another lease of the job");
        book.add(lease(1, 2), Timestamp::from_ms(20), "second");
        assert_eq!(book.take(lease(1, 1)), None, "it was leased again since");
        assert_eq!(book.take(lease(1, 2)), Some("second"));
        assert_eq!(book.take(lease(1, 2)), None, "once");
    }

    #[test]
    fn leases_that_ran_out_do_not_pile_up() {
        let mut book = Book::default();
        let kept = lease(0, 1);
        book.add(kept, Timestamp::from_ms(5), ());
        book.renew(kept, Timestamp::from_ms(i64::MAX));
        for n in 1..100_000_u32 {
            let now = Timestamp::from_ms(i64::from(n));
            book.note_time(now);
            book.add(lease(u128::from(n), 1), now.plus_ms(100), ());
            assert!(book.held.len() <= SMALL + 1, "{} at {n}", book.held.len());
        }
        assert_eq!(book.take(kept), Some(()), "one that was renewed is still held");
    }

    #[test]
    fn live_leases_are_kept_however_many_they_are() {
        let mut book = Book::default();
        for n in 0..20_000_u32 {
            book.add(lease(u128::from(n), 1), Timestamp::from_ms(100), n);
        }
        assert!((0..20_000).all(|n| book.take(lease(u128::from(n), 1)) == Some(n)));
    }
}
