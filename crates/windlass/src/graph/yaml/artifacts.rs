//! What jobs leave for each other, and which of them may not run side by side.

use super::draw::Problem;
use super::fields::Reader;
use super::jobs::check_id;
use super::tree::{Tree, Value};
use serde_json::{Map, Value as Json, json};
use windlass_core::graph::Template;

/// Artifacts, as the runner of commands takes them: `{"upload": {"dist": ["target/x"]}, "download": {"dist": "."}}`.
pub(super) fn read(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Json> {
    let fields = reader.fields(tree, "artifacts", &["upload", "download"])?;
    let mut artifacts = Map::new();
    if let Some(tree) = fields.get("upload") {
        artifacts.insert("upload".to_owned(), read_upload(reader, tree)?);
    }
    if let Some(tree) = fields.get("download") {
        artifacts.insert("download".to_owned(), read_download(reader, tree)?);
    }
    Some(Json::Object(artifacts))
}

fn read_upload(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Json> {
    let mut upload = Map::new();
    for (key, tree) in reader.map(tree)? {
        check_id(reader, &key.text, &key.span, "an artifact");
        let paths: Option<Vec<&str>> = reader.texts(tree)?.into_iter().map(|(_, one)| path(reader, one)).collect();
        let paths = paths?;
        if paths.is_empty() {
            return reader.refuse(tree, "there are no files", "write a path, or a list of them");
        }
        upload.insert(key.text.to_string(), json!(paths));
    }
    Some(Json::Object(upload))
}

fn read_download(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Json> {
    let mut download = Map::new();
    if let Value::Map(map) = &tree.value {
        for (key, tree) in map.iter() {
            check_id(reader, &key.text, &key.span, "an artifact");
            let folder = if tree.is_nothing() { "." } else { path(reader, tree)? };
            download.insert(key.text.to_string(), json!(folder));
        }
    } else {
        for (name, tree) in reader.texts(tree)? {
            check_id(reader, name, &tree.span, "an artifact");
            if download.insert(name.to_owned(), json!(".")).is_some() {
                reader.say(Problem::new(tree.span.clone(), format!("`{name}` is downloaded twice")));
            }
        }
    }
    Some(Json::Object(download))
}

fn path<'y>(reader: &Reader<'_>, tree: &'y Tree<'y>) -> Option<&'y str> {
    match reader.text(tree)? {
        text if text.trim().is_empty() || tree.is_nothing() => {
            reader.refuse(tree, "a path was expected here", "write one, relative to where the job runs")
        }
        text => Some(text),
    }
}

/// The group of jobs of which only so many run at once, and how many.
pub(super) fn read_concurrency(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<(Template, u32)> {
    let Value::Map(_) = &tree.value else { return Some((read_group(reader, tree)?, 1)) };
    let fields = reader.fields(tree, "concurrency", &["group", "max"])?;
    let Some(group) = fields.get("group") else {
        return reader.refuse(tree, "concurrency needs a group", "write group: and a name for those that share it");
    };
    let most = match fields.get("max") {
        Some(tree) => reader.whole(tree, 1, i64::from(u32::MAX))?,
        None => 1,
    };
    Some((read_group(reader, group)?, u32::try_from(most).ok()?))
}

fn read_group(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Template> {
    let template = reader.template(tree)?;
    // A text without expressions is the name itself, and can be looked at now.
    if template.exprs().next().is_none() {
        reader.name::<windlass_core::name::GroupName, _>(tree)?;
    }
    Some(template)
}
