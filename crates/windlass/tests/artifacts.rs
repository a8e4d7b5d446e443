//! Artifacts over a folder and over memory: what comes back, what is never seen, and what leads nowhere.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

#[path = "support/artifacts.rs"]
mod support;

use async_trait::async_trait;
use bytes::Bytes;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{MadeUp, MadeUpPieces, Place, artifact, assert_refused, broken, mode, put, tree};
use windlass::artifacts::{
    Artifact, ArtifactError, ArtifactResult, ArtifactSource, FolderSource, Limits, Manifest, PART_BYTES, PIECE_BYTES,
    Pieces, Put, SourceFile, download, open, upload,
};

#[tokio::test]
async fn what_is_uploaded_comes_back() {
    let place = Place::new();
    place.write("a.txt", b"hello");
    place.write("empty", b"");
    place.write("deep/er/still/x.bin", &(0..=255).collect::<Vec<u8>>());
    place.write("ünï/日本 語.txt", "ß".as_bytes());
    place.write(".hidden/.env", b"x");
    place.write("twice/a.txt", b"hello");
    place.write("bin/tool", b"#!/bin/sh\n");
    fs::set_permissions(place.source().join("bin/tool"), fs::Permissions::from_mode(0o700)).unwrap();

    for store in place.stores() {
        let uploaded = place.upload(&store, &["."]).await.unwrap();
        assert_eq!(uploaded.files().len(), 7);
        assert_eq!(store.manifest(&artifact()).await.unwrap(), uploaded);
        assert_eq!(place.download(&store).await.unwrap(), uploaded);
        assert_eq!(tree(&place.target()), tree(&place.source()));
        assert_ne!(mode(&place.target().join("bin/tool")) & 0o100, 0, "it is executable");
        assert_eq!(mode(&place.target().join("a.txt")), 0, "it is not");
        // Once more over what is there.
        fs::write(place.target().join("a.txt"), b"old").unwrap();
        place.download(&store).await.unwrap();
        assert_eq!(tree(&place.target()), tree(&place.source()));
        fs::remove_dir_all(place.target()).unwrap();
    }
}

#[tokio::test]
async fn patterns_choose() {
    let place = Place::new();
    for path in ["a.js", "a.css", "lib/b.js", "lib/deep/c.js", "lib/deep/d.md", "docs/e.md"] {
        place.write(path, path.as_bytes());
    }
    let store = open("memory://").unwrap();
    for (patterns, expected) in [
        (vec!["a.js"], vec!["a.js"]),
        (vec!["*.js"], vec!["a.js"]),
        (vec!["**/*.js"], vec!["a.js", "lib/b.js", "lib/deep/c.js"]),
        (vec!["lib"], vec!["lib/b.js", "lib/deep/c.js", "lib/deep/d.md"]),
        (vec!["./lib/"], vec!["lib/b.js", "lib/deep/c.js", "lib/deep/d.md"]),
        (vec!["lib/*"], vec!["lib/b.js"]),
        (vec!["lib/**", "lib/b.js", "docs/?.md"], vec!["docs/e.md", "lib/b.js", "lib/deep/c.js", "lib/deep/d.md"]),
    ] {
        let manifest = place.upload(&store, &patterns).await.unwrap();
        let paths: Vec<&str> = manifest.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, expected, "{patterns:?}");
    }
    for pattern in ["nothing", "*.rs", "docs/*.js", "a.js/x", "a.js/*", "lib/deep/x/**"] {
        match place.upload(&store, &["a.css", pattern]).await {
            Err(ArtifactError::NotFound { what }) => assert!(what.contains(&format!("`{pattern}`")), "{what}"),
            Err(ArtifactError::Refused { path, .. }) => assert_eq!((path.as_str(), &pattern[..5]), ("a.js", "a.js/")),
            other => panic!("{pattern}: {other:?}"),
        }
    }
    assert_refused(place.upload(&store, &[]).await, "source");
    assert_refused(place.upload(&store, &["../target"]).await, "../target");
    assert_refused(place.upload(&store, &["/etc/passwd"]).await, "/etc/passwd");
}

#[tokio::test]
async fn the_last_upload_of_a_name_counts_and_a_late_attempt_does_not() {
    for store in Place::new().stores() {
        let place = Place::new();
        let mut put = put();
        let mut expected = Vec::new();
        for (attempt, content) in [(1, "first"), (1, "second"), (1, "third"), (3, "fourth"), (2, "late")] {
            put.attempt = attempt;
            place.write("a.txt", content.as_bytes());
            let before = store.manifest(&artifact()).await;
            upload(store.as_ref(), &put, &place.source(), &["."]).await.unwrap();
            place.download(&store).await.unwrap();
            expected.push(fs::read_to_string(place.target().join("a.txt")).unwrap());
            if let Ok(before) = before {
                // Who reads the one before goes on.
                let mut content = store.get(&artifact(), &before.files()[0]).await.unwrap();
                while content.next().await.unwrap().is_some() {}
            }
        }
        assert_eq!(expected, ["first", "second", "third", "fourth", "fourth"]);
        assert_eq!(store.list(&"run-1".try_into().unwrap()).await.unwrap(), ["dist".try_into().unwrap()]);
    }
}

#[tokio::test]
async fn a_half_upload_is_never_seen() {
    let place = Place::new();
    let run = "run-1".try_into().unwrap();
    for store in place.stores() {
        let half = || MadeUp::new(&["a", "b"], 1, |n| if n == 0 { Ok("half".into()) } else { Err(broken()) });
        let failed = store.put(&put(), &half()).await;
        assert!(failed.is_err_and(|error| error.is_retryable()));
        assert!(matches!(store.manifest(&artifact()).await, Err(ArtifactError::NotFound { .. })));
        assert!(matches!(place.download(&store).await, Err(ArtifactError::NotFound { .. })));
        assert_eq!(store.list(&run).await.unwrap(), []);

        let whole = MadeUp::new(&["a", "b"], 1, |_| Ok("whole".into()));
        let manifest = store.put(&put(), &whole).await.unwrap();
        store.put(&put(), &half()).await.unwrap_err();
        assert_eq!(store.manifest(&artifact()).await.unwrap(), manifest, "the one before still stands");
    }
    assert!(tree(&place.home()).len() > 1, "there was something that could have been seen");
}

#[tokio::test]
async fn damage_is_found_and_leaves_nothing_behind() {
    fn longer(content: &mut Vec<u8>) {
        content.push(b'!');
    }
    fn shorter(content: &mut Vec<u8>) {
        content.truncate(6);
    }
    fn other(content: &mut [u8]) {
        content[2] ^= 1;
    }
    for damage in [longer, shorter, |content: &mut Vec<u8>| other(content)] {
        let place = Place::new();
        let store = place.folder_store();
        place.write("good.txt", b"good");
        place.write("sub/bad.txt", b"content");
        place.upload(&store, &["."]).await.unwrap();
        let blob = place.home().join("blobs").join(blake3::hash(b"content").to_hex().as_str());
        let mut content = fs::read(&blob).unwrap();
        damage(&mut content);
        fs::write(&blob, content).unwrap();
        match place.download(&store).await {
            Err(ArtifactError::Damaged { path, .. }) => assert_eq!(path, "sub/bad.txt"),
            other => panic!("{other:?}"),
        }
        assert_eq!(tree(&place.target()), [], "nothing is left");

        fs::remove_file(&blob).unwrap();
        assert!(matches!(place.download(&store).await, Err(ArtifactError::Damaged { .. })));
        assert_eq!(tree(&place.target()), []);
        // Uploaded again, it is whole again.
        place.upload(&store, &["."]).await.unwrap();
        place.download(&store).await.unwrap();
    }
}

#[tokio::test]
async fn a_hostile_manifest_leads_nowhere() {
    let place = Place::new();
    let store = place.folder_store();
    let absolute = place.outside().join("x").to_str().unwrap().to_owned();
    fs::create_dir(place.outside()).unwrap();
    for path in ["../outside/x", "a/../../outside/x", &absolute, "..", "a\0b", ""] {
        place.plant_manifest(path, b"evil");
        assert!(matches!(place.download(&store).await, Err(ArtifactError::Damaged { .. })), "{path}");
        assert_eq!(tree(&place.outside()), [], "{path}");
        assert_eq!(tree(&place.target()), [], "{path}");
    }
    // Where files are received is nobody else's.
    place.plant_manifest(".windlass-download-0/0", b"evil");
    assert_refused(place.download(&store).await, ".windlass-download-0/0");
    // The planted manifest is one that counts.
    place.plant_manifest("fine", b"good");
    place.download(&store).await.unwrap();
    assert_eq!(tree(&place.target()), [("fine".into(), b"good".to_vec())]);
}

#[tokio::test]
async fn a_link_in_the_target_leads_nowhere() {
    let place = Place::new();
    let store = place.folder_store();
    place.write("sub/dir/x", b"new");
    place.write("other", b"new");
    place.upload(&store, &["."]).await.unwrap();
    fs::create_dir_all(place.outside().join("dir")).unwrap();
    fs::write(place.outside().join("dir/x"), b"theirs").unwrap();
    let before = tree(&place.outside());

    for (link, to) in [
        ("sub", place.outside()),
        ("sub/dir", place.outside().join("dir")),
        ("sub/dir/x", place.outside().join("dir/x")),
    ] {
        let link_path = place.target().join(link);
        fs::create_dir_all(link_path.parent().unwrap()).unwrap();
        symlink(to, &link_path).unwrap();
        assert_refused(place.download(&store).await, link);
        assert_eq!(tree(&place.outside()), before, "{link}");
        assert!(!place.target().join("other").exists(), "nothing is received if one is refused");
        fs::remove_dir_all(place.target()).unwrap();
    }
    // The folder itself is the caller's choice.
    symlink(place.outside(), place.target()).unwrap();
    place.download(&store).await.unwrap();
    assert_eq!(fs::read(place.outside().join("sub/dir/x")).unwrap(), b"new");
}

#[tokio::test]
async fn a_folder_in_the_place_of_a_file_is_refused() {
    let place = Place::new();
    let store = place.folder_store();
    place.write("a/b", b"new");
    place.upload(&store, &["."]).await.unwrap();
    fs::create_dir_all(place.target().join("a/b/c")).unwrap();
    assert_refused(place.download(&store).await, "a/b");
    fs::remove_dir_all(place.target().join("a")).unwrap();
    fs::write(place.target().join("a"), b"file").unwrap();
    assert_refused(place.download(&store).await, "a");
    assert_eq!(tree(&place.target()), [("a".into(), b"file".to_vec())]);
}

#[tokio::test]
async fn what_a_killed_download_left_is_not_uploaded() {
    let place = Place::new();
    place.write(".windlass-download-0/0", b"half");
    place.write("sub/a.txt", b"a");
    place.write("sub/.windlass-download-1/0", b"half");
    place.write("sub/.windlass-download-1/deep/1", b"half");
    place.write(".windlass-downloads", b"no folder of a download");
    let store = place.folder_store();
    for patterns in [&["."][..], &["**"], &["*", "**/*"], &["sub/**", ".windlass-downloads"]] {
        let manifest = place.upload(&store, patterns).await.unwrap();
        let paths: Vec<&str> = manifest.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [".windlass-downloads", "sub/a.txt"], "{patterns:?}");
    }
    for pattern in [".windlass-download-0", "sub/.windlass-download-1/0", ".windlass-download-0/*"] {
        assert_refused(place.upload(&store, &[pattern]).await, pattern.trim_end_matches("/*"));
    }
}

#[tokio::test]
async fn a_link_in_the_source_is_refused_by_name() {
    let place = Place::new();
    let store = place.folder_store();
    fs::create_dir(place.outside()).unwrap();
    fs::write(place.outside().join("secret"), b"secret").unwrap();
    place.write("sub/a.txt", b"a");
    symlink(place.outside().join("secret"), place.source().join("sub/link")).unwrap();
    symlink(place.outside(), place.source().join("folder")).unwrap();
    for (pattern, name) in [
        ("sub/link", "sub/link"),
        ("sub", "sub/link"),
        ("sub/*", "sub/link"),
        ("folder", "folder"),
        ("folder/secret", "folder"),
        ("folder/*", "folder"),
    ] {
        assert_refused(place.upload(&store, &[pattern]).await, name);
    }
    // What is not among the files is in nobody's way, and is not entered.
    let manifest = place.upload(&store, &["**/*.txt"]).await.unwrap();
    assert_eq!(manifest.files().len(), 1);
    place.upload(&store, &["**/secret"]).await.unwrap_err();

    let pipe = std::process::Command::new("mkfifo").arg(place.source().join("sub/pipe")).status().unwrap();
    assert!(pipe.success());
    assert_refused(place.upload(&store, &["sub/p*"]).await, "sub/pipe");
}

#[tokio::test]
async fn limits_hold() {
    let place = Place::new();
    for n in 0..4 {
        place.write(&format!("{n}"), b"12345");
    }
    let too_large = |result: ArtifactResult<Manifest>| matches!(result, Err(ArtifactError::TooLarge { .. }));
    // Before anything is read.
    for limits in [Limits { files: 3, bytes: 20 }, Limits { files: 4, bytes: 19 }] {
        let found = FolderSource::open(&place.source(), &["."], limits).await;
        assert!(matches!(found, Err(ArtifactError::TooLarge { .. })), "{limits:?}");
    }
    for store in place.stores() {
        let mut put = put();
        put.limits = Limits { files: 3, bytes: 100 };
        assert!(too_large(upload(store.as_ref(), &put, &place.source(), &["."]).await));
        put.limits = Limits { files: 4, bytes: 19 };
        assert!(too_large(upload(store.as_ref(), &put, &place.source(), &["."]).await));
        // A source that gives more than it said when it was looked at.
        let four = || MadeUp::new(&["a", "b", "c", "d"], 5, |_| Ok("1".into()));
        assert!(too_large(store.put(&put, &four()).await));
        put.limits.files = 3;
        put.limits.bytes = 20;
        assert!(too_large(store.put(&put, &four()).await));
        put.limits.files = 4;
        assert!(store.manifest(&artifact()).await.is_err());
        store.put(&put, &four()).await.unwrap();

        let limits = [Limits { files: 3, bytes: 20 }, Limits { files: 4, bytes: 19 }];
        for limits in limits {
            assert!(too_large(download(store.as_ref(), &artifact(), &place.target(), limits).await));
        }
        assert!(!place.target().exists());
        download(store.as_ref(), &artifact(), &place.target(), put.limits).await.unwrap();
        fs::remove_dir_all(place.target()).unwrap();

        let many: Vec<String> = (0..10_001).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        put.limits = Limits { files: usize::MAX, bytes: u64::MAX };
        assert!(too_large(store.put(&put, &MadeUp::new(&many, 0, |_| Ok(Bytes::new()))).await));
        assert_refused(store.put(&put, &MadeUp::new(&["x", "x/y"], 0, |_| Ok(Bytes::new()))).await, "x/y");
    }
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_refused() {
    let piece = |n| Ok(Bytes::from(vec![u8::try_from(n).unwrap(); PART_BYTES]));
    let place = Place::new();
    for store in place.stores() {
        assert_refused(store.put(&put(), &MadeUp::new(&["big"], 2, piece)).await, "big");
        assert!(store.manifest(&artifact()).await.is_err());
    }
    assert_eq!(
        tree(&place.kept()).iter().filter(|(_, content)| !content.is_empty()).count(),
        0,
        "nothing half is left"
    );
}

#[tokio::test]
async fn removing_a_run_leaves_nothing() {
    let place = Place::new();
    place.write("a/b.txt", b"x");
    for store in place.stores() {
        place.upload(&store, &["."]).await.unwrap();
        let manifest = place.upload(&store, &["."]).await.unwrap();
        let other = Put::new(Artifact::new("run-11", "dist").unwrap());
        upload(store.as_ref(), &other, &place.source(), &["."]).await.unwrap();
        if place.home().exists() {
            fs::write(place.home().join("blobs/x#1"), b"of a process that was killed").unwrap();
        }
        let run = "run-1".try_into().unwrap();
        store.remove(&run).await.unwrap();
        assert_eq!(store.list(&run).await.unwrap(), []);
        assert!(matches!(store.manifest(&artifact()).await, Err(ArtifactError::NotFound { .. })));
        assert!(store.get(&artifact(), &manifest.files()[0]).await.is_err(), "the content is gone, too");
        assert!(store.manifest(&other.artifact).await.is_ok(), "the other run is still there");
        store.remove(&run).await.unwrap();
        store.remove(&other.artifact.run).await.unwrap();
    }
    assert_eq!(tree(&place.kept()), [("removed/".into(), vec![]), ("runs/".into(), vec![])]);
}

mod slow_large {
    use super::*;

    /// Bytes that count how many of them are alive.
    struct Counted(Vec<u8>, Arc<Alive>);

    #[derive(Default)]
    struct Alive {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Counted {
        fn bytes(content: Vec<u8>, alive: &Arc<Alive>) -> Bytes {
            let now = alive.now.fetch_add(content.len(), Ordering::SeqCst) + content.len();
            alive.most.fetch_max(now, Ordering::SeqCst);
            Bytes::from_owner(Self(content, Arc::clone(alive)))
        }
    }

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.now.fetch_sub(self.0.len(), Ordering::SeqCst);
        }
    }

    const PIECES: usize = 64;
    const MIB: usize = 1 << 20;

    struct Large(Vec<SourceFile>, Arc<Alive>);

    #[async_trait]
    impl ArtifactSource for Large {
        fn files(&self) -> &[SourceFile] {
            &self.0
        }

        async fn open(&self, _: &SourceFile) -> ArtifactResult<Box<dyn Pieces>> {
            let (mut given, alive) = (0, Arc::clone(&self.1));
            let lazy = move || {
                given += 1;
                let piece = || Counted::bytes(vec![u8::try_from(given).unwrap(); MIB], &alive);
                Ok((given <= PIECES).then(piece))
            };
            Ok(Box::new(MadeUpPieces(Box::new(lazy))))
        }
    }

    #[tokio::test]
    async fn a_large_file_goes_through_in_parts() {
        let place = Place::new();
        let store = place.folder_store();
        let alive = Arc::new(Alive::default());
        let file = SourceFile { path: "large".try_into().unwrap(), executable: false };
        let manifest = store.put(&put(), &Large(vec![file], Arc::clone(&alive))).await.unwrap();
        assert_eq!(manifest.bytes(), (PIECES * MIB) as u64);
        let most = alive.most.load(Ordering::SeqCst);
        assert!((PART_BYTES..=PART_BYTES + MIB).contains(&most), "{most} bytes at once");

        let mut content = store.get(&artifact(), &manifest.files()[0]).await.unwrap();
        while let Some(piece) = content.next().await.unwrap() {
            assert!(piece.len() <= PIECE_BYTES);
        }
        place.download(&store).await.unwrap();
        let expected: Vec<u8> = (1..=PIECES).flat_map(|n| vec![u8::try_from(n).unwrap(); MIB]).collect();
        assert!(fs::read(place.target().join("large")).unwrap() == expected, "another content");
        // From a folder, too.
        let back = upload(store.as_ref(), &put(), &place.target(), &["large"]).await.unwrap();
        assert_eq!(back, manifest);
    }
}
