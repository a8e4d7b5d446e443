use super::*;

struct Given(Vec<&'static [u8]>);

#[async_trait]
impl Pieces for Given {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        Ok(if self.0.is_empty() { None } else { Some(Bytes::from_static(self.0.remove(0))) })
    }
}

fn entry(path: &str, content: &[u8]) -> FileEntry {
    let path = FilePath::new(path).unwrap();
    FileEntry { path, size: content.len() as u64, blake3: blake3::hash(content).into(), executable: false }
}

async fn read(expected: FileEntry, pieces: Vec<&'static [u8]>) -> ArtifactResult<Vec<u8>> {
    let (mut checked, mut all) = (Checked::new(expected, Box::new(Given(pieces))), Vec::new());
    while let Some(piece) = checked.next().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

#[test]
fn names_that_could_lead_elsewhere_are_refused() {
    for good in ["r", "018f-AB_c", &"x".repeat(64)] {
        assert!(RunKey::new(good).is_ok(), "{good}");
    }
    for bad in ["", ".", "..", "a/b", "a b", "ä", "a\0", &"x".repeat(65)] {
        assert!(RunKey::new(bad).is_err(), "{bad}");
    }
    for good in ["dist", "linux-x86_64.tar", ".hidden", "...", &"x".repeat(100)] {
        assert!(ArtifactName::new(good).is_ok(), "{good}");
    }
    for bad in ["", ".", "..", "a/b", "a\\b", "ä", "a\n", &"x".repeat(101)] {
        assert!(ArtifactName::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn paths_stay_within_their_artifact() {
    for good in ["a", "a/b", "ü/…/日本.txt", "..a", "a..", ".env", &format!("{}/b", "x".repeat(255))] {
        assert!(FilePath::new(good).is_ok(), "{good}");
    }
    let (long, deep) = ("x".repeat(256), "a/".repeat(600) + "a");
    for bad in ["", "/", "/a", "..", "../x", "a/../b", "a/..", ".", "./a", "a//b", "a/", "a\0b", "a\nb", &long, &deep] {
        assert!(matches!(FilePath::new(bad), Err(ArtifactError::Refused { .. })), "{bad}");
        let text = format!(
            r#"{{"version":1,"files":[{{"path":{},"size":0,"blake3":"{}"}}]}}"#,
            serde_json::to_string(bad).unwrap(),
            blake3::hash(b"")
        );
        assert!(matches!(Manifest::from_json(text.as_bytes()), Err(ArtifactError::Damaged { .. })), "{bad}");
    }
}

#[test]
fn a_manifest_comes_back_and_keeps_its_order() {
    let mut tool = entry("bin/tool", b"x");
    tool.executable = true;
    let manifest = Manifest::new(vec![entry("z", b""), tool.clone(), entry("bin-2", b"yy")]).unwrap();
    assert_eq!(manifest.files().iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["bin/tool", "bin-2", "z"]);
    assert_eq!(manifest.bytes(), 3);
    let read = Manifest::from_json(&manifest.to_json().unwrap()).unwrap();
    assert_eq!(read, manifest);
    assert_eq!(read.files()[0], tool);
}

#[test]
fn a_path_is_taken_once_and_a_file_is_no_folder() {
    for (first, second) in [("a", "a"), ("a", "a/b"), ("a/b", "a/b/c/d")] {
        // What sorts between them as text must not hide it.
        let files = vec![entry(second, b""), entry("a-", b""), entry("a/b-", b""), entry(first, b"")];
        assert!(matches!(Manifest::new(files), Err(ArtifactError::Refused { .. })), "{first} {second}");
    }
    assert!(Manifest::new(vec![entry("a", b""), entry("ab", b""), entry("b/a", b"")]).is_ok());
}

#[test]
fn what_is_no_manifest_is_damaged() {
    let hash = blake3::hash(b"");
    for text in [
        String::new(),
        "[]".into(),
        r#"{"version":2,"files":[]}"#.into(),
        r#"{"files":[]}"#.into(),
        r#"{"version":1,"files":[{"path":"a","size":0,"blake3":"../x"}]}"#.into(),
        format!(r#"{{"version":1,"files":[{{"path":"a","size":-1,"blake3":"{hash}"}}]}}"#),
    ] {
        assert!(matches!(Manifest::from_json(text.as_bytes()), Err(ArtifactError::Damaged { .. })), "{text}");
    }
    let many = vec![entry("a", b""); FILES_MAX + 1];
    assert!(matches!(Manifest::new(many), Err(ArtifactError::TooLarge { .. })));
}

#[test]
fn sizes_that_overflow_are_too_large() {
    let mut files = vec![entry("a", b""), entry("b", b"")];
    files.iter_mut().for_each(|file| file.size = u64::MAX);
    let bytes = Manifest::new(files).unwrap().bytes();
    assert!(Limits::default().check_bytes(bytes).is_err());
    assert!(Limits::default().check_bytes(BYTES_MAX).is_ok());
    assert!(Limits { files: usize::MAX, bytes: 0 }.check_files(FILES_MAX + 1).is_err());
}

#[tokio::test]
async fn content_that_is_not_what_it_was_never_ends_well() {
    let hello = || entry("a", b"hello");
    assert_eq!(read(hello(), vec![b"he", b"", b"llo"]).await.unwrap(), b"hello");
    assert_eq!(read(entry("e", b""), vec![]).await.unwrap(), b"");
    for pieces in [vec![&b"hell"[..]], vec![b"hello", b"!"], vec![b"hel", b"LO"], vec![]] {
        assert!(matches!(read(hello(), pieces.clone()).await, Err(ArtifactError::Damaged { .. })), "{pieces:?}");
    }
    // What has no end is not read to its end.
    let mut endless = Checked::new(hello(), Box::new(Given(vec![b"hello"; 1_000])));
    assert_eq!(endless.next().await.unwrap().unwrap(), "hello");
    let error = endless.next().await.unwrap_err().to_string();
    assert!(error.contains("longer"), "{error}");
}

#[test]
fn an_error_is_fit_for_a_terminal() {
    let error = ArtifactError::refused("a\x1b[31m\0", "no").to_string();
    assert!(error.contains("\\u{1b}") && !error.contains(char::is_control), "{error}");
}
