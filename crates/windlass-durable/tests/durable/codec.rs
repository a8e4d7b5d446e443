//! The stored form of records.

use windlass_durable::{Entry, Event, Record, decode_history};

#[test]
fn unknown_fields_are_ignored_and_absent_ones_have_defaults() {
    let record = Record::decode(br#"{"r":"fired","t":5,"of":3,"new":{"a":[1]},"zz":null}"#).unwrap();
    assert_eq!(record.encode(), br#"{"r":"fired","t":5,"of":3}"#);
    let Entry::Event { event: Event::Signal { body, id, .. }, .. } =
        Record::decode(br#"{"r":"signal","t":5,"n":"ping"}"#).unwrap().entry
    else {
        panic!()
    };
    assert!(body.is_null() && id.is_empty());
}

#[test]
fn what_a_newer_version_wrote_is_refused_with_a_hint() {
    for text in [r#"{"v":2,"r":"fired","t":5,"of":3}"#, r#"{"r":"teleported","t":5}"#] {
        let error = Record::decode(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("update this program"), "{error}");
    }
    let error = decode_history(["{\"r\":\"deadline\",\"t\":1}", "{}"]).unwrap_err();
    assert_eq!(error.index, 1);
    for wrong in ["", "[]", r#"{"r":"fired","t":5}"#, r#"{"r":"fired","of":5}"#, r#"{"r":"call","id":"x"}"#] {
        assert!(Record::decode(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn an_unknown_class_of_error_is_a_failure() {
    let record = Record::decode(br#"{"r":"done","t":5,"of":1,"c":"new_class","d":{"message":"m"}}"#).unwrap();
    let Entry::Event { event: Event::Done { outcome: Err(error), .. }, .. } = record.entry else { panic!() };
    assert_eq!((error.class.name(), error.message.as_str(), error.attempts), ("failed", "m", 0));
}

#[test]
fn a_discarded_message_keeps_its_form() {
    for text in [
        r#"{"r":"discarded","t":5,"n":"approve","of":3}"#,
        r#"{"r":"discarded","t":5,"n":"approve","id":"m1","d":{"say":"signal","body":1.0}}"#,
        r#"{"r":"discarded","t":5,"d":"no JSON"}"#,
        r#"{"r":"discarded","t":5}"#,
    ] {
        let record = Record::decode(text.as_bytes()).unwrap();
        assert!(matches!(record.entry, Entry::Discarded { .. }) && !record.is_event(), "{record:?}");
        assert_eq!(String::from_utf8(record.encode()).unwrap(), text);
    }
}
