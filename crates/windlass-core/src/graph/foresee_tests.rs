use super::expr::Expr;
use super::properties::{graph, job, node};
use super::*;
use serde_json::{Map, json};

#[test]
fn labels_that_follow_from_the_inputs_are_known_before_a_run() {
    let labelled = |id: &str, needs: &[usize], labels: &[&str]| {
        let Work::Job(mut job) = job() else { panic!("a job") };
        job.labels = labels.iter().map(|label| Template::parse(label).unwrap()).collect();
        Node { work: Work::Job(job), ..node(id, needs) }
    };
    let from = |source, node| Node { matrix: Some(Matrix { source, fail_fast: false, parallel_max: None }), ..node };
    let row = |zone: &str| Map::from_iter([("zone".to_owned(), json!(zone))]);
    let expr = |text| Source::From(Expr::parse(text).unwrap());
    let given = Map::from_iter([("size".to_owned(), json!("${{ inputs.size }}"))]);
    let given = Map::from_iter(given.into_iter().chain([("made".to_owned(), json!("${{ needs.a.outputs.x }}"))]));
    let gate = Node { work: Work::Gate { inputs: given }, ..node("gate", &[0]) };
    let inside = |node| Node { entrance: Some(7), ..node };
    let graph = graph(vec![
        labelled("a", &[], &["plain", "${{ inputs.where }}-${{ inputs.size }}", "${{ inputs.none }}"]),
        labelled("b", &[0], &["b", "${{ needs.a.outputs.x }}", "${{ success() }}"]),
        from(Source::Rows(vec![row("eu"), row("us")]), labelled("c", &[], &["${{ matrix.zone }}"])),
        from(expr("fromJSON(inputs.list)"), labelled("d", &[], &["${{ matrix.value }}"])),
        from(expr("fromJSON(needs.a.outputs.x)"), labelled("e", &[0], &["${{ matrix.value }}", "e"])),
        from(Source::Rows(Vec::new()), labelled("f", &[], &["nobody"])),
        Node {
            condition: Some(Expr::parse("inputs.where == 'there'").unwrap()),
            ..labelled("g", &[0], &["${{ needs.a.outputs.x }}"])
        },
        gate,
        inside(labelled("gate/h", &[], &["${{ inputs.size }}"])),
        inside(labelled("gate/i", &[], &["${{ inputs.made }}"])),
    ]);
    let inputs = json!({"where": "here", "size": "big", "list": "[\"x\", 7]"});
    let labels = foresee_labels(&graph, &inputs).unwrap();
    let known: Vec<Vec<&str>> = labels.iter().map(|one| one.known.iter().map(String::as_str).collect()).collect();
    let none = Vec::new;
    let expected = [
        vec!["here-big", "plain"],
        vec!["b"],
        vec!["eu", "us"],
        vec!["7", "x"],
        vec!["e"],
        none(),
        none(),
        none(),
        vec!["big"],
        none(),
    ];
    assert_eq!(known, expected);
    let open: Vec<Vec<&str>> = labels.iter().map(|one| one.open.iter().map(Template::as_str).collect()).collect();
    assert_eq!(open[1], ["${{ needs.a.outputs.x }}", "${{ success() }}"]);
    assert_eq!(open[4], ["${{ matrix.value }}"]);
    assert_eq!(open[9], ["${{ inputs.made }}"]);
    assert_eq!(open.iter().flatten().count(), 4);
}
