use super::*;
use serde_json::json;

struct Data {
    root: Value,
    success: bool,
    failure: bool,
}

impl Scope for Data {
    fn at(&self, path: &[String]) -> Option<Value> {
        path.iter().try_fold(&self.root, |value, part| value.get(part)).cloned()
    }
    fn success(&self) -> bool {
        self.success
    }
    fn failure(&self) -> bool {
        self.failure
    }
}

fn data() -> Data {
    let root = json!({
        "needs": {"build": {"result": "succeeded", "outputs": {"count": "3", "ok": "false", "list": "[1,\"two\"]", "sha": "abc"}}},
        "inputs": {"deploy": true, "level": 2, "tags": ["a", "b"], "deep": {"er": "x"}},
        "env": {"CI": "1"},
        "matrix": {"os": "linux"},
    });
    Data { root, success: true, failure: false }
}

fn value(text: &str) -> Value {
    Expr::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}")).value(&data())
}

#[test]
fn values_are_worked_out() {
    for (text, expected) in [
        ("true", json!(true)),
        ("null", json!(null)),
        ("12", json!(12)),
        ("-1.5", json!(-1.5)),
        ("'it''s'", json!("it's")),
        ("''", json!("")),
        ("'''a'", json!("'a")),
        ("needs.build.outputs.sha", json!("abc")),
        ("needs.build.outputs['sha']", json!("abc")),
        ("needs.build.outputs.none", json!(null)),
        ("inputs.deep.er", json!("x")),
        ("needs.build.result == 'succeeded'", json!(true)),
        ("needs.build.outputs.count == 3", json!(true)),
        ("needs.build.outputs.count > 2.5", json!(true)),
        ("needs.build.outputs.count >= 3 && needs.build.outputs.count <= 3", json!(true)),
        ("needs.build.outputs.count < 3", json!(false)),
        ("needs.build.outputs.ok == false", json!(true)),
        ("needs.build.outputs.none == ''", json!(true)),
        ("needs.build.outputs.none == 0", json!(false)),
        ("'abc' < 'abd'", json!(true)),
        ("'10' < '9'", json!(false)),
        ("9007199254740993 == 9007199254740992", json!(false)),
        ("9007199254740993 > 9007199254740992", json!(true)),
        ("'9007199254740993' > 9007199254740992", json!(true)),
        ("'9007199254740993' > '9007199254740992'", json!(true)),
        ("9007199254740993 > 9007199254740992.0", json!(true)),
        ("9007199254740992 == 9007199254740992.0", json!(true)),
        ("-2 < -1.5 && -1 > -1.5 && 1 < 1.5 && 2 > 1.5", json!(true)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
        ("18446744073709551615 > 18446744073709551614", json!(true)),
        ("-9223372036854775808 < 18446744073709551615", json!(true)),
        ("'100000000000000000000000000000000000000000' > 18446744073709551615", json!(true)),
        ("1e300 > 18446744073709551615 && -1e300 < 0", json!(true)),
        ("inputs.tags < 1", json!(false)),
        ("!needs.build.outputs.ok", json!(true)),
        ("!!'x'", json!(true)),
        ("inputs.deploy && 'yes' || 'no'", json!("yes")),
        ("env.NONE || 'fallback'", json!("fallback")),
        ("true || false && false", json!(true)),
        ("(true || false) && false", json!(false)),
        ("contains(inputs.tags, 'a')", json!(true)),
        ("contains(inputs.tags, 'c')", json!(false)),
        ("contains(needs.build.outputs.sha, 'bc')", json!(true)),
        ("contains(inputs.deep, 'er')", json!(true)),
        ("startsWith(matrix.os, 'lin')", json!(true)),
        ("endsWith(matrix.os, 'lin')", json!(false)),
        ("fromJSON(needs.build.outputs.list)", json!([1, "two"])),
        ("fromJSON('{')", json!(null)),
        ("${{ env.CI == 1 }}", json!(true)),
        ("always()", json!(true)),
        ("failure()", json!(false)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn a_condition_means_success_unless_it_asks() {
    let failed = Data { success: false, failure: true, ..data() };
    for (text, expected) in [
        ("true", false),
        ("always()", true),
        ("failure()", true),
        ("success()", false),
        ("inputs.deploy && failure()", true),
    ] {
        assert_eq!(Expr::parse(text).unwrap().holds(&failed), expected, "{text}");
    }
    assert!(Expr::parse("inputs.deploy").unwrap().holds(&data()));
    assert!(!Expr::parse("needs.build.outputs.ok").unwrap().holds(&data()));
}

#[test]
fn what_is_wrong_is_said_and_shown() {
    for (text, marked, message, help) in [
        ("", "", "ends too soon", ""),
        ("1 +", "+", "nothing more was expected", "join conditions"),
        ("a == 1", "a", "`a` is not known", "single quotes"),
        ("need.build.result", "need", "`need` is not known", "did you mean `needs`?"),
        ("alway()", "alway", "there is no function `alway`", "did you mean `always`?"),
        ("always(1)", "always(1)", "takes 0 arguments, and 1 are given", ""),
        ("contains('a')", "contains('a')", "takes 2 arguments", ""),
        ("env.A = 'b'", "=", "assigns", "compare with =="),
        ("env.A == \"b\"", "\"", "double quotes", "single quotes"),
        ("'open", "'open", "never closed", ""),
        ("(true", "(", "never closed", ""),
        ("1x", "1x", "`1x` is no number", ""),
        ("1 < 18446744073709551616", "18446744073709551616", "too large to be kept exactly", ""),
        ("-9223372036854775809", "-9223372036854775809", "too large to be kept exactly", ""),
        ("needs.", "", "behind the dot", ""),
        ("needs[needs.a]", "]", "in the brackets", ""),
        ("true false", "f", "nothing more was expected", "&&"),
        ("1 == == 2", "=", "a value was expected", ""),
        ("é", "é", "a value was expected", ""),
    ] {
        let error = Expr::parse(text).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error:?}");
        assert_eq!(&text[error.span.clone()], marked, "{text}: {error:?}");
        assert!(error.help.unwrap_or_default().contains(help), "{text}");
    }
}

#[test]
fn nesting_and_length_are_bounded() {
    let nested = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Expr::parse(&nested(60)).is_ok());
    assert!(Expr::parse(&nested(65)).unwrap_err().message.contains("deeper than 64"));
    assert!(Expr::parse(&"!".repeat(1_000)).unwrap_err().message.contains("deeper than 64"));
    assert!(Expr::parse(&format!("'{}'", "x".repeat(5_000))).unwrap_err().message.contains("4096 are allowed"));
    // A long chain is not deep.
    assert!(Expr::parse(&vec!["true"; 400].join(" && ")).is_ok());
}

#[test]
fn it_is_stored_as_it_was_written() {
    let expr = Expr::parse("${{ inputs.deploy }}").unwrap();
    let stored = serde_json::to_string(&expr).unwrap();
    assert_eq!(stored, "\"${{ inputs.deploy }}\"");
    assert_eq!(serde_json::from_str::<Expr>(&stored).unwrap(), expr);
    assert!(serde_json::from_str::<Expr>("\"a ==\"").is_err());
    assert_eq!(expr.paths()[0].parts, ["inputs", "deploy"]);
    assert_eq!(&expr.as_str()[expr.paths()[0].span.clone()], "inputs.deploy");
}
