//! The guide shows nothing that cannot be read.

use super::*;

/// The YAML of the guide; one that begins with the name of a file is used by others.
fn examples(guide: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in guide.lines() {
        match &mut open {
            None if line == "```yaml" => open = Some(String::new()),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    blocks
}

#[test]
fn every_example_of_the_guide_can_be_read() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/workflows.md")).unwrap();
    let blocks = examples(&guide);
    assert!(blocks.len() > 10, "{}", blocks.len());
    let load = |path: &str| {
        let named = blocks.iter().find(|block| block.lines().next() == Some(&format!("# {path}")));
        named.cloned().ok_or_else(|| "it is not in the guide".to_owned())
    };
    for block in &blocks {
        if let Err(problems) = read_with("guide.yml", block, &load) {
            panic!("{problems}");
        }
        schema_tests::assert_fits(block);
    }
    // Every key of a job and of a file stands in its tables.
    for key in jobs::KEYS.iter().chain(&workflow::KEYS) {
        assert!(guide.contains(&format!("`{key}`")), "{key} is not in the guide");
    }
}
