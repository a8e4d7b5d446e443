//! What commands hand on: lines in the file that `WINDLASS_OUTPUT` names.
//!
//! `key=value`, or for a value of several lines `key<<EOF`, the lines, and `EOF`, or any other word, alone on a line.

use super::error::CommandError;
use super::mask::Mask;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use windlass_core::job::RESULT_BYTES_MAX;
use windlass_core::name::nearest;

/// The longest output.
const BYTES_MAX: usize = 64 << 10;
/// All of them, names included; the result has some room left.
const ALL_BYTES_MAX: u64 = RESULT_BYTES_MAX - (64 << 10);
/// The most of them.
const COUNT_MAX: usize = 1_000;
/// The longest file that is read: one may be said twice, and the last time counts.
const FILE_BYTES_MAX: u64 = 4 * RESULT_BYTES_MAX;

pub(super) type Outputs = BTreeMap<String, String>;

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Outputs, CommandError> {
    let about = fs::symlink_metadata(path).map_err(CommandError::file(path))?;
    if !about.is_file() {
        return Err(CommandError::Outputs("is not a file any more; append to it, and leave it where it is".to_owned()));
    }
    if about.len() > FILE_BYTES_MAX {
        let reason = format!("is {} bytes long, and may be {FILE_BYTES_MAX}; put large things into files", about.len());
        return Err(CommandError::Outputs(reason));
    }
    parse(&fs::read(path).map_err(CommandError::file(path))?)
}

fn parse(bytes: &[u8]) -> Result<Outputs, CommandError> {
    let mut outputs = Outputs::new();
    let mut lines = (1..).zip(bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n'));
    while let Some((at, line)) = lines.next() {
        let wrong = |reason: String| CommandError::Output { line: at, reason };
        let line = text(at, line)?;
        if line.trim().is_empty() {
            continue;
        }
        let (name, value) = match (line.find('='), line.find("<<")) {
            (equals, Some(mark)) if equals.is_none_or(|equals| mark < equals) => {
                let end = line[mark + 2..].trim();
                if end.is_empty() {
                    return Err(wrong("names no end after <<; write key<<EOF".to_owned()));
                }
                let value = many_lines(&mut lines, end)?;
                let value = value.ok_or_else(|| wrong(format!("begins a value that has no end `{end}`")))?;
                (&line[..mark], value)
            }
            (Some(equals), _) => (&line[..equals], line[equals + 1..].to_owned()),
            (None, _) => return Err(wrong("is neither key=value nor key<<EOF".to_owned())),
        };
        let name = name.trim();
        if !is_name(name) {
            let reason = format!("has `{}` for a name; use letters, digits, - and _", name.escape_debug());
            return Err(wrong(reason));
        }
        if value.len() > BYTES_MAX {
            let reason = format!("has a value of {} bytes, and may have {BYTES_MAX}; put it into a file", value.len());
            return Err(wrong(reason));
        }
        outputs.insert(name.to_owned(), value);
    }
    Ok(outputs)
}

type Numbered<'b> = (usize, &'b [u8]);

/// The lines up to the end; `None` when there is no end.
fn many_lines<'b>(lines: &mut impl Iterator<Item = Numbered<'b>>, end: &str) -> Result<Option<String>, CommandError> {
    let mut value = Vec::new();
    for (at, line) in lines {
        let line = text(at, line)?;
        if line == end {
            return Ok(Some(value.join("\n")));
        }
        value.push(line);
    }
    Ok(None)
}

fn text(at: usize, line: &[u8]) -> Result<&str, CommandError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    std::str::from_utf8(line)
        .map_err(|_| CommandError::Output { line: at, reason: "is not UTF-8; encode it, as base64 perhaps".to_owned() })
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(fits) && name.len() <= 255
}

/// Refuses what may not be handed on.
pub(super) fn check(outputs: &Outputs, declared: &[String], mask: &Mask) -> Result<(), CommandError> {
    let refuse = |reason: String| Err(CommandError::Outputs(reason));
    if outputs.len() > COUNT_MAX {
        return refuse(format!("has {} outputs, and may have {COUNT_MAX}", outputs.len()));
    }
    let bytes: u64 = outputs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
    if bytes > ALL_BYTES_MAX {
        return refuse(format!(
            "has {bytes} bytes of outputs, and may have {ALL_BYTES_MAX}; put large ones into files"
        ));
    }
    if outputs.keys().any(|name| mask.is_in(name.as_bytes())) {
        return refuse(
            "has an output whose name contains a secret; outputs are stored, and everybody sees them".to_owned(),
        );
    }
    if let Some((name, _)) = outputs.iter().find(|(_, value)| mask.is_in(value.as_bytes())) {
        return refuse(format!(
            "gives `{name}` a value that contains a secret; outputs are stored, and everybody sees them"
        ));
    }
    if declared.is_empty() {
        return Ok(());
    }
    if let Some(name) = outputs.keys().find(|name| !declared.contains(name)) {
        let near = nearest(name, declared.iter().map(String::as_str));
        let help =
            near.map_or_else(|| "add it to the job's outputs".to_owned(), |near| format!("did you mean `{near}`?"));
        return refuse(format!("has `{name}`, which the job does not declare; {help}"));
    }
    let missing: Vec<&str> = declared.iter().filter(|name| !outputs.contains_key(*name)).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    refuse(format!("lacks `{}`, which the job declares; write key=value into it", missing.join("` and `")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, String)> {
        parse(text.as_bytes()).unwrap().into_iter().collect()
    }

    fn refused(text: &[u8]) -> String {
        parse(text).unwrap_err().to_string()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(parsed("a=1\n\nb= x=y \r\n"), [pair("a", "1"), pair("b", " x=y ")]);
        assert_eq!(parsed("a=1\na=2"), [pair("a", "2")], "the last one counts");
        assert_eq!(parsed("a<<EOF\none\n\n a=2\nEOF\nb=<<EOF"), [pair("a", "one\n\n a=2"), pair("b", "<<EOF")]);
        assert_eq!(parsed("a<<X\nX\n"), [pair("a", "")]);
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(refused(b"a=1\nnonsense\n"), "line 2 of WINDLASS_OUTPUT is neither key=value nor key<<EOF");
        assert!(refused(b"a<<EOF\nx\n").contains("line 1 of WINDLASS_OUTPUT begins a value that has no end `EOF`"));
        assert!(refused(b"a<<\n").contains("names no end"));
        assert!(refused(b"=x").contains("has `` for a name"));
        assert!(refused(b"a b=x").contains("has `a b` for a name"));
        assert!(refused(b"x=1\na=\xff").contains("line 2 of WINDLASS_OUTPUT is not UTF-8"));
        let long = format!("a={}", "x".repeat(BYTES_MAX + 1));
        assert!(refused(long.as_bytes()).contains("and may have 65536"));
        parse(&long.as_bytes()[..long.len() - 1]).unwrap();
    }

    #[test]
    fn an_output_that_contains_a_secret_in_its_name_or_value_is_refused() {
        let mask = Mask::of(["hunter2"].into_iter());
        let refused = |name: &str, value: &str| {
            let outputs = Outputs::from([pair(name, value)]);
            let declared: [&[String]; 2] = [&[], &[name.to_owned()]];
            declared.map(|declared| check(&outputs, declared, &mask).map_err(|error| error.to_string()))
        };
        for answer in refused("key_hunter2", "1") {
            let words = answer.unwrap_err();
            assert!(words.contains("whose name contains a secret") && !words.contains("hunter2"), "{words}");
        }
        for answer in refused("key", "is hunter2") {
            assert!(answer.unwrap_err().contains("gives `key` a value that contains a secret"));
        }
        assert_eq!(refused("key", "hunter"), [Ok(()), Ok(())]);
    }

    #[test]
    fn all_together_fit_into_a_result() {
        let value = "x".repeat(BYTES_MAX);
        let many = |count: usize| (0..count).map(|at| (format!("k{at}"), value.clone())).collect::<Outputs>();
        check(&many(14), &[], &Mask::default()).unwrap();
        assert!(check(&many(15), &[], &Mask::default()).unwrap_err().to_string().contains("and may have 983040"));
    }
}
