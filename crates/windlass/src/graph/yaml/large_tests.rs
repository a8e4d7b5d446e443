//! Large numbers, and small files that come to a lot.

use super::tests::{good, payload};
use super::*;
use serde_json::json;

#[test]
fn whole_numbers_keep_all_their_digits_or_are_refused() {
    let workflow =
        good("jobs: { a: { kind: x, with: { n: [9007199254740993, 18446744073709551615, -9223372036854775808] } } }");
    assert_eq!(payload(&workflow, 0)["n"], json!([9_007_199_254_740_993_u64, u64::MAX, i64::MIN]));
    let large = "18446744073709551616";
    for text in [
        format!("jobs: {{ a: {{ kind: x, with: {{ deep: [{{ n: {large} }}] }} }} }}"),
        format!("jobs: {{ a: {{ run: x, strategy: {{ matrix: {{ n: [1, {large}] }} }} }} }}"),
        format!("jobs: {{ a: {{ run: x, strategy: {{ matrix: {{ n: [1], include: [{{ n: -{large} }}] }} }} }} }}"),
        format!("inputs: {{ n: {{ type: number, default: {large} }} }}\njobs: {{ a: {{ run: x }} }}"),
        format!("jobs: {{ a: {{ run: x, if: 'inputs.n == {large}' }} }}\ninputs: {{ n: {{ type: number }} }}"),
    ] {
        let problems = read("x", &text).map(|_| ()).expect_err(&text).to_string();
        assert!(problems.contains("18446744073709551616` is too large to be kept exactly"), "{problems}");
    }
    let quoted = good(&format!("jobs: {{ a: {{ kind: x, with: {{ n: '{large}' }} }}, b: {{ run: {large} }} }}"));
    assert_eq!(payload(&quoted, 0)["n"], json!(large));
}

/// A small file may not come to more bytes than a run may hold.
#[test]
fn what_repeats_a_large_text_too_often_is_refused_where_it_does() {
    let large = "x".repeat(1 << 20);
    let jobs: String = (0..20).map(|n| format!("  j{n}: *job\n")).collect();
    let jobs = format!("jobs:\n  j: &job {{ run: {large} }}\n{jobs}");
    let texts = vec!["*text"; 20].join(", ");
    let list = format!("jobs: {{ a: {{ kind: x, with: {{ t: &text {large}, all: [{texts}] }} }} }}");
    let numbers = (0..20).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let matrix =
        |rows: &str| format!("jobs: {{ a: {{ run: x, strategy: {{ matrix: {{ n: [{numbers}], {rows} }} }} }} }}");
    let includes: String = (0..20).map(|n| format!("{{ n: {n}, t: *text }}, ")).collect();
    for (text, words) in [
        (jobs, "the file comes to more than 16777216 bytes here\n   --> x:18:8"),
        (list, "the file comes to more than 16777216 bytes here"),
        (matrix(&format!("t: [{large}]")), "the matrix comes to more than 16777216 bytes here"),
        (matrix(&format!("include: [{{ n: 0, t: &text {large} }}, {includes}]")), "more than 16777216 bytes"),
    ] {
        let problems = read("x", &text).map(|_| ()).expect_err(words).to_string();
        assert!(problems.contains(words), "{}", &problems[..problems.len().min(500)]);
    }
}
