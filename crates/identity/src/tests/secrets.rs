//! Static secrets: where they come from, what is refused, and that a rotated one is seen.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};

use crate::{SecretError, SecretSource, Secrets};

fn file(path: &Path) -> Secrets {
    Secrets::new(BTreeMap::from([("api".to_owned(), SecretSource::File(path.to_path_buf()))]))
}

fn value(secrets: &Secrets) -> Result<String, SecretError> {
    secrets.get("api").map(|secret| secret.expose_secret().to_owned())
}

#[test]
fn a_file_is_read_at_each_use_so_that_rotation_needs_no_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "first\n").unwrap();
    let secrets = file(&path);
    assert_eq!(value(&secrets).unwrap(), "first");
    // As a mounted volume rotates: another file takes the name.
    fs::write(dir.path().join("next"), "second").unwrap();
    fs::rename(dir.path().join("next"), &path).unwrap();
    assert_eq!(value(&secrets).unwrap(), "second");
    fs::remove_file(&path).unwrap();
    assert!(matches!(value(&secrets).unwrap_err(), SecretError::Unreadable { .. }));
}

#[test]
fn what_names_no_file_may_be_a_value_and_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().display().to_string();
    for (pasted, says) in [("sk_live_c4nary", folder.as_str()), ("ab/c4nary+x==", "is named:")] {
        let told = value(&file(&dir.path().join(pasted))).unwrap_err().to_string();
        assert!(told.contains("`api`") && told.contains("there is no such file"), "{told}");
        assert!(told.contains(says) && !told.contains("c4nary"), "{told}");
    }
    // A file that exists but cannot be read is named.
    let path = dir.path().join("there");
    symlink(dir.path().join("nowhere"), &path).unwrap();
    let told = value(&file(&path)).unwrap_err().to_string();
    assert!(told.contains(&path.display().to_string()), "{told}");
}

#[test]
fn two_versions_are_live_after_a_rotation_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "first").unwrap();
    let secrets = file(&path);
    assert!(secrets.live("api").unwrap().previous.is_none());
    let turn = |value: &str| {
        fs::write(dir.path().join("next"), value).unwrap();
        fs::rename(dir.path().join("next"), &path).unwrap();
        let live = secrets.clone().live("api").unwrap();
        let previous = live.previous.map(|version| version.value.expose_secret().to_owned());
        (live.newest.value.expose_secret().to_owned(), previous)
    };
    assert_eq!(turn("second"), ("second".to_owned(), Some("first".to_owned())));
    assert_eq!(turn("third"), ("third".to_owned(), Some("second".to_owned())));
    assert_eq!(turn("third"), ("third".to_owned(), Some("second".to_owned())));
    assert!(!format!("{secrets:?}{:?}", secrets.live("api")).contains("second"));
}

#[tokio::test(start_paused = true)]
async fn the_version_before_is_live_for_ten_minutes_after_each_rotation_and_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "first").unwrap();
    let secrets = file(&path);
    let previous = || {
        let live = secrets.live("api").unwrap();
        live.previous.map(|version| version.value.expose_secret().to_owned())
    };
    assert_eq!(previous(), None);
    for (now, before) in [("second", "first"), ("third", "second")] {
        fs::write(&path, now).unwrap();
        assert_eq!(previous().as_deref(), Some(before));
        tokio::time::advance(Duration::from_secs(599)).await;
        // A read in between does not prolong its life.
        assert_eq!(previous().as_deref(), Some(before));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(previous(), None);
        assert_eq!(value(&secrets).unwrap(), now);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_read_for_the_moment_leaves_the_value_in_use_and_does_not_stop_the_ten_minutes()
 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    let aside = dir.path().join("aside");
    fs::write(&path, "first").unwrap();
    let secrets = file(&path);
    assert_eq!(value(&secrets).unwrap(), "first");
    fs::write(&path, "second").unwrap();
    assert!(secrets.live("api").unwrap().previous.is_some());
    // A link to itself cannot be followed, not even by root, and fails differently from a missing file.
    fs::rename(&path, &aside).unwrap();
    symlink(&path, &path).unwrap();
    assert!(matches!(value(&file(&path)).unwrap_err(), SecretError::Unreadable { .. }));
    let live = secrets.live("api").unwrap();
    assert_eq!(live.newest.value.expose_secret(), "second");
    assert_eq!(live.previous.unwrap().value.expose_secret(), "first");
    tokio::time::advance(Duration::from_mins(10)).await;
    let live = secrets.live("api").unwrap();
    assert_eq!(live.newest.value.expose_secret(), "second");
    assert!(live.previous.is_none());
    fs::rename(&aside, &path).unwrap();
    assert_eq!(value(&secrets).unwrap(), "second");
    fs::remove_file(&path).unwrap();
    assert!(value(&secrets).is_err());
}

#[test]
fn a_mounted_volume_that_swaps_its_link_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    for (version, value) in [("..1", "first"), ("..2", "second")] {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("api"), value).unwrap();
    }
    let link = |version: &str| {
        symlink(version, dir.path().join("..tmp")).unwrap();
        fs::rename(dir.path().join("..tmp"), dir.path().join("..data")).unwrap();
    };
    link("..1");
    symlink("..data/api", dir.path().join("api")).unwrap();
    let secrets = file(&dir.path().join("api"));
    assert_eq!(value(&secrets).unwrap(), "first");
    link("..2");
    assert_eq!(value(&secrets).unwrap(), "second");
}

#[test]
fn a_half_written_file_leaves_the_old_value_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    fs::write(&path, "a whole secret").unwrap();
    let secrets = file(&path);
    assert_eq!(value(&secrets).unwrap(), "a whole secret");
    for half in [&b""[..], b"\n", b"a who", b"-----BEGIN PRIVATE KEY-----\nMIGH", &[0xff, 0xfe]] {
        fs::write(&path, half).unwrap();
        assert_eq!(value(&secrets).unwrap(), "a whole secret", "{half:?}");
    }
    fs::write(&path, "another secret").unwrap();
    assert_eq!(value(&secrets).unwrap(), "another secret");
    // A value that was removed is no longer used.
    fs::remove_file(&path).unwrap();
    assert!(matches!(value(&secrets).unwrap_err(), SecretError::Unreadable { .. }));
    fs::write(&path, "").unwrap();
    assert!(value(&secrets).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_value_is_used_on_for_fifteen_minutes_while_its_file_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    let spoil: [fn(&Path); 3] = [
        |path| fs::write(path, "").unwrap(),
        |path| fs::write(path, "a who").unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            symlink(path, path).unwrap();
        },
    ];
    for spoil in spoil {
        fs::write(&path, "a whole secret").unwrap();
        let secrets = file(&path);
        assert_eq!(value(&secrets).unwrap(), "a whole secret");
        spoil(&path);
        tokio::time::advance(Duration::from_secs(899)).await;
        // A read in between does not prolong its life.
        assert_eq!(value(&secrets).unwrap(), "a whole secret");
        tokio::time::advance(Duration::from_secs(1)).await;
        let refused = value(&secrets).unwrap_err();
        assert!(!refused.to_string().contains("a who"), "{refused}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        assert_eq!(value(&secrets).unwrap(), "another");
        // Nor does an earlier problem of the file start the wait.
        fs::write(&path, "").unwrap();
        assert_eq!(value(&secrets).unwrap(), "another");
    }
}

#[test]
fn one_line_end_is_trimmed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    for (text, expected) in [
        ("s", "s"),
        ("s\n", "s"),
        ("s\r\n", "s"),
        ("s\n\n", "s\n"),
        (" s ", " s "),
        ("s\r", "s\r"),
        ("a\nb\n", "a\nb"),
    ] {
        fs::write(&path, text).unwrap();
        assert_eq!(value(&file(&path)).unwrap(), expected);
    }
}

#[test]
fn what_cannot_be_a_secret_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    for bytes in [
        b"".to_vec(),
        b"\n".to_vec(),
        b"a\0b".to_vec(),
        vec![0xff, 0xfe],
        vec![b'x'; 64 * 1024 + 1],
    ] {
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(value(&file(&path)).unwrap_err(), SecretError::Unusable { .. }));
    }
    fs::write(&path, vec![b'x'; 64 * 1024]).unwrap();
    assert_eq!(value(&file(&path)).unwrap().len(), 64 * 1024);
    assert!(matches!(value(&file(dir.path())).unwrap_err(), SecretError::Unusable { .. }));
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(matches!(value(&file(&socket)).unwrap_err(), SecretError::Unusable { .. }));
}

#[test]
fn a_secret_that_cannot_be_had_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    assert!(file(&path).check().is_err());
    fs::write(&path, "here").unwrap();
    assert!(file(&path).check().is_ok());
    let empty = SecretSource::Env(SecretString::from(""));
    assert!(Secrets::new(BTreeMap::from([("api".to_owned(), empty)])).check().is_err());
    assert_eq!(
        Secrets::default().get("api").unwrap_err(),
        SecretError::Unknown { names: Vec::new() }
    );
}

#[tokio::test]
async fn a_value_in_the_place_of_a_name_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let pasted = "hunter2-pasted";
    let source = || SecretSource::File(dir.path().join("x"));
    let two = BTreeMap::from([("mail".to_owned(), source()), ("sts".to_owned(), source())]);
    for (secrets, names) in [
        (Secrets::new(two), "those of `secrets` are `mail`, `sts`"),
        (Secrets::default(), "which has none"),
    ] {
        let errors = [
            secrets.named(pasted).unwrap_err(),
            secrets.get(pasted).unwrap_err(),
            secrets.live_soon(pasted).await.unwrap_err(),
        ];
        for error in errors {
            let said = error.to_string();
            assert!(said.contains(names), "{said}");
            assert!(!format!("{said} {error:?}").contains("hunter2"), "{said}");
        }
    }
}

#[test]
fn a_value_from_the_environment_is_given_as_it_was_found() {
    let source = SecretSource::Env(SecretString::from("from-outside"));
    let secrets = Secrets::new(BTreeMap::from([("api".to_owned(), source)]));
    assert_eq!(value(&secrets).unwrap(), "from-outside");
    assert!(secrets.named("api").is_ok() && secrets.named("API").is_err());
    assert_eq!(secrets.names().collect::<Vec<_>>(), ["api"]);
}

#[test]
fn versions_of_a_secret_are_told_apart_by_marks_that_say_nothing_elsewhere() {
    let sources = || {
        let value = SecretString::from("first");
        let source = SecretSource::Env(value);
        [("api".to_owned(), source)].into()
    };
    let (here, elsewhere) = (Secrets::new(sources()), Secrets::new(sources()));
    let mark = |secrets: &Secrets, name, value: &str| secrets.mark(name, &value.into()).unwrap();
    let first = mark(&here, "api", "first");
    assert_eq!(mark(&here.clone(), "api", "first"), first);
    assert_ne!(mark(&here, "api", "second"), first);
    assert_ne!(mark(&here, "other", "first"), first);
    assert_ne!(mark(&elsewhere, "api", "first"), first, "a guess cannot be tried");
    assert_ne!(first, placet_types::digest::Digest::of(b"first"));
    assert!(!format!("{here:?} {first:?}").contains("first"));
}
