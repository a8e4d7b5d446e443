use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Anything that may stand in a name, and then some: every byte but the one that ends it.
fn text() -> impl Strategy<Value = String> {
    "[a-c\u{1}\u{7f}é\u{10ffff}]{0,4}"
}

fn bytes(part: &impl Part) -> Vec<u8> {
    let mut key = Vec::new();
    part.put(&mut key);
    key
}

/// Bytes sort as values do, and come back with whatever stands behind them.
fn sorts_and_comes_back<P: Part + Ord + Clone + std::fmt::Debug>(a: &P, b: &P, behind: &[u8]) {
    assert_eq!(bytes(a).cmp(&bytes(b)), a.cmp(b));
    let mut key = bytes(a);
    key.extend(behind);
    let mut rest = key.as_slice();
    assert_eq!(P::take(&mut rest).as_ref(), Some(a));
    assert_eq!(rest, behind);
    for cut in 0..bytes(a).len() {
        assert_eq!(P::take(&mut &bytes(a)[..cut]), None, "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn numbers_sort(a: u64, b: u64, c: i64, d: i64, near in -3i64..3, behind: Vec<u8>) {
        sorts_and_comes_back(&a, &b, &behind);
        sorts_and_comes_back(&c, &d, &behind);
        sorts_and_comes_back(&near, &(near + 1), &behind);
        sorts_and_comes_back(&Row(a), &Row(b), &behind);
        sorts_and_comes_back(&Ord64(c), &Ord64(d), &behind);
        sorts_and_comes_back(&Timestamp::from_ms(c), &Timestamp::from_ms(d), &behind);
    }

    #[test]
    fn ids_states_and_hashes_sort(p: u16, q: u16, a: u128, b: u128, i in 0usize..6, j in 0usize..6, k: [u8; 16], l: [u8; 16]) {
        sorts_and_comes_back(&JobId::from_parts(p, a), &JobId::from_parts(q, b), b"x");
        sorts_and_comes_back(&State::ALL[i], &State::ALL[j], b"x");
        sorts_and_comes_back(&k, &l, b"x");
    }

    #[test]
    fn texts_sort_and_none_is_the_beginning_of_another(a in text(), b in text(), behind: Vec<u8>) {
        let key = |text: &str| {
            let mut key = Vec::new();
            put_text(text, &mut key);
            key
        };
        prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
        prop_assert_eq!(key(&b).starts_with(&key(&a)), a == b);
        let mut whole = key(&a);
        whole.extend(&behind);
        let mut rest = whole.as_slice();
        prop_assert_eq!(take_text(&mut rest), Some(a.as_str()));
        prop_assert_eq!(rest, behind.as_slice());
    }

    #[test]
    fn names_sort_with_what_follows_them(a in "[a-c]{1,3}", b in "[a-c]{1,3}", m: i64, n: i64) {
        let (x, y) = (WorkerId::new(&a).unwrap(), WorkerId::new(&b).unwrap());
        sorts_and_comes_back(&x, &y, b"rest");
        let (k, l) = (cancelling(x, Row(m.unsigned_abs())), cancelling(y, Row(n.unsigned_abs())));
        prop_assert_eq!(k.bytes().cmp(l.bytes()), (a, m.unsigned_abs()).cmp(&(b, n.unsigned_abs())));
    }

    #[test]
    fn a_range_is_exactly_what_begins_with_its_key(
        (one, other) in (edges(), edges()), times in prop::collection::vec((edges(), any::<i64>(), any::<u64>()), 0..20),
    ) {
        let all: BTreeMap<Vec<u8>, (u64, i64, u64)> = times
            .iter()
            .map(|&(queue, at, row)| {
                (due(QueueId(queue), Timestamp::from_ms(at), Row(row)).bytes().to_vec(), (queue, at, row))
            })
            .collect();
        let inside = |range: &Range| -> Vec<(u64, i64, u64)> {
            let within = |key: &[u8]| key >= range.from.as_slice() && key < range.to.as_slice();
            all.iter().filter(|(key, _)| within(key)).map(|(_, parts)| *parts).collect()
        };
        let expect = |test: &dyn Fn(&(u64, i64, u64)) -> bool| -> Vec<(u64, i64, u64)> {
            all.values().filter(|parts| test(parts)).copied().collect()
        };
        let queue = QueueId(one);
        let at = Timestamp::from_ms(other.cast_signed());
        let under = due_of(queue).under();
        prop_assert_eq!(inside(&under), expect(&|&(of, ..)| of == one));
        let through = under.clone().through(&due_at(queue, at));
        prop_assert_eq!(inside(&through), expect(&|&(of, t, _)| of == one && t <= at.as_ms()));
        let below = under.clone().below(&due_at(queue, at));
        prop_assert_eq!(inside(&below), expect(&|&(of, t, _)| of == one && t < at.as_ms()));
        let from = under.clone().from(&due_at(queue, at));
        prop_assert_eq!(inside(&from), expect(&|&(of, t, _)| of == one && t >= at.as_ms()));
        if let Some(&(_, t, row)) = times.first() {
            let above = under.above(&due(queue, Timestamp::from_ms(t), Row(row)));
            prop_assert_eq!(inside(&above), expect(&|&(of, u, r)| of == one && (u, r) > (t, row)));
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let mut rest = bytes.as_slice();
        let _ = (WorkerId::take(&mut rest), JobId::take(&mut rest), State::take(&mut rest), u64::take(&mut rest));
        let _ = parts::<QueueId>(Table::Due, &bytes);
    }
}

/// Numbers at the edges of bytes, where ranges go wrong, and few enough to meet each other.
fn edges() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1, 254, 255, 256, 257, (1 << 16) - 1, 1 << 16, i64::MAX as u64, 1 << 63, u64::MAX])
}

#[test]
fn a_key_is_that_of_its_table_only() {
    let key = lease(Timestamp::from_ms(5), Row(7));
    assert!(parts::<(Timestamp, Row)>(Table::Removable, key.bytes()).is_err());
    assert!(parts::<(Timestamp, Row)>(Table::Lease, &[]).is_err());
    assert_eq!(parts::<(Timestamp, Row)>(Table::Lease, key.bytes()).unwrap(), (Timestamp::from_ms(5), Row(7)));
    assert!(parts::<(Timestamp, Row, Row)>(Table::Lease, key.bytes()).is_err());
}

/// The numbers of the tables are in every key that was ever written.
#[test]
fn keys_are_as_they_were() {
    let hex = |key: &Key| key.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let at = Timestamp::from_ms(1);
    assert_eq!(hex(&layout()), "010000000000000000");
    assert_eq!(hex(&ready(LaneId(2), GroupId(3), Ord64(-1))), "0f000000000000000200000000000000037fffffffffffffff");
    assert_eq!(hex(&due(QueueId(1), at, Row(9))), "10000000000000000180000000000000010000000000000009");
    assert_eq!(
        hex(&ended(LaneId(1), State::Failed, at, Row(2))),
        "1400000000000000010480000000000000010000000000000002"
    );
    assert_eq!(hex(&tick(at, ScheduleName::new("é").unwrap())), "1e8000000000000001c3a900");
}
