//! The key file and the forms of a public key.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use tempfile::tempdir;

use super::super::{SealError, SealKey, SealPublic};
use super::{key, name, other_key};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn write_key(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_key_is_made_once_for_its_owner_only_and_then_kept() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("seal.key");
    assert!(matches!(SealKey::open(&path), Err(SealError::Io { .. })));
    let made = SealKey::open_or_create(&path, &name("placet.example")).unwrap();
    assert_eq!(mode(&path), 0o600);
    let again = SealKey::open_or_create(&path, &name("another.name")).unwrap();
    assert_eq!(again.public(), made.public());
    assert_eq!(SealKey::open(&path).unwrap().public(), made.public());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    let elsewhere = SealKey::open_or_create(&folder.path().join("b.key"), &name("placet.example"));
    assert_ne!(elsewhere.unwrap().public(), made.public());
}

#[test]
fn any_key_survives_its_file() {
    let folder = tempdir().unwrap();
    // Enough that the Base64 of some has a `+` or a `/`.
    for number in 0..64 {
        let path = folder.path().join(format!("{number}.key"));
        let made = SealKey::open_or_create(&path, &name("placet.example")).unwrap();
        assert_eq!(SealKey::open(&path).unwrap().public(), made.public());
        assert_eq!(SealPublic::parse_vkey(&made.public().vkey()).unwrap(), *made.public());
    }
}

#[test]
fn of_many_who_make_a_key_at_once_all_get_the_same() {
    let folder = Arc::new(tempdir().unwrap());
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let folder = Arc::clone(&folder);
            std::thread::spawn(move || {
                let path = folder.path().join("seal.key");
                SealKey::open_or_create(&path, &name("placet.example")).unwrap().public().vkey()
            })
        })
        .collect();
    let keys: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_key_file_that_others_may_touch_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("seal.key");
    SealKey::open_or_create(&path, &name("placet.example")).unwrap();
    for open in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        let error = SealKey::open_or_create(&path, &name("placet.example")).unwrap_err();
        assert!(matches!(error, SealError::Exposed { mode, .. } if mode == open), "{open:o}");
        assert!(error.to_string().contains(&format!("mode {open:03o}")), "{error}");
    }
    for closed in [0o600, 0o400, 0o700] {
        fs::set_permissions(&path, fs::Permissions::from_mode(closed)).unwrap();
        SealKey::open(&path).unwrap();
    }
    // Through a link it is the mode of the file that counts.
    let link = folder.path().join("link.key");
    symlink(&path, &link).unwrap();
    SealKey::open(&link).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(SealKey::open(&link), Err(SealError::Exposed { .. })));
}

#[test]
fn a_file_that_is_not_exactly_a_key_is_refused_and_left_alone() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("seal.key");
    SealKey::open_or_create(&path, &name("placet.example")).unwrap();
    let sound = fs::read_to_string(&path).unwrap();
    let mut refused = 0;
    for place in 0..sound.trim_end().len() {
        let mut changed = sound.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        write_key(&path, &String::from_utf8(changed).unwrap());
        let error = SealKey::open_or_create(&path, &name("placet.example")).unwrap_err();
        assert!(matches!(error, SealError::KeyFile { .. }), "{place}");
        refused += 1;
    }
    assert!(refused > 70, "{refused}");
    for text in [
        "",
        "\n",
        "PRIVATE+KEY+",
        sound.strip_prefix('P').unwrap(),
        &format!("{sound}\n"),
        &format!("{sound}x"),
    ] {
        write_key(&path, text);
        assert!(matches!(SealKey::open(&path), Err(SealError::KeyFile { .. })), "{text:?}");
        let before = fs::read(&path).unwrap();
        assert!(SealKey::open_or_create(&path, &name("placet.example")).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(SealKey::open(&path), Err(SealError::KeyFile { .. })));
    let directory = folder.path().join("folder");
    fs::create_dir(&directory).unwrap();
    assert!(matches!(SealKey::open(&directory), Err(SealError::KeyFile { .. })));
    write_key(&path, sound.trim_end());
    SealKey::open(&path).unwrap();
}

#[test]
fn a_public_key_survives_its_line_and_no_other_line_is_one() {
    let public = key().public().clone();
    let line = public.vkey();
    assert_eq!(SealPublic::parse_vkey(&line).unwrap(), public);
    assert_eq!(SealPublic::parse_vkey(&format!("{line}\n")).unwrap(), public);
    for place in 0..line.len() {
        let mut changed = line.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(matches!(SealPublic::parse_vkey(&changed), Err(SealError::PublicKey)), "{changed}");
    }
    let private = "PRIVATE+KEY+placet.example+00000000+AQ==";
    for text in ["", "a", "a+b", "a+b+c", private] {
        assert!(matches!(SealPublic::parse_vkey(text), Err(SealError::PublicKey)), "{text}");
    }
    assert_ne!(other_key().public().hash(), public.hash());
}

/// Keys in the field are for ever: this fails when a form changes. The values were computed by another program.
#[test]
fn the_forms_of_a_key_are_fixed() {
    let key = SealKey::from_seed(name("placet.example"), &[1; 32]);
    assert_eq!(key.public().vkey(), VKEY);
    assert_eq!(
        key.public().jwk(),
        serde_json::json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w",
            "kid": "placet.example+257f137a",
            "alg": "EdDSA",
            "use": "sig",
        })
    );
}

const VKEY: &str = "placet.example+257f137a+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";

#[test]
fn a_secret_is_not_shown() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("seal.key");
    let key = SealKey::open_or_create(&path, &name("placet.example")).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let secret = text.trim_end().splitn(5, '+').last().unwrap();
    let shown = format!("{key:?} {:?} {}", key.public(), key.public().jwk());
    assert!(!shown.contains(secret), "{shown}");
}
