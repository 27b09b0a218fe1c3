//! `placet doctor`: the data folder.
//!
//! Owns the checks in and around it. Leaves nothing behind: a missing folder is not created.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use placet_store::{embedded::SEGMENT_BYTES, journal::unmoved_segments};
use tokio::time::Instant;

use super::Check;
use crate::{
    config::{ledger::Choice, load::Config},
    storage,
};

/// This much free space is comfortable.
const FREE_BYTES_GOOD: u64 = 2 << 30;
/// The number of measured syncs.
const SYNCS: u32 = 50;

/// Looks at the folder: who may read it, how much room there is, who holds it, how fast its disk is.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    let folder = &config.data;
    let about = "data folder";
    let metadata = match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            return vec![Check::fail(
                about,
                format!("`{}` is not a folder", folder.display()),
                "name another with --data",
            )];
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return absent(config),
        Err(error) => {
            return vec![Check::fail(
                about,
                format!("`{}`: {error}", folder.display()),
                "give its owner access",
            )];
        }
    };
    let mode = metadata.permissions().mode() & 0o777;
    let open_to_others = mode & 0o077 != 0;
    let mut checks = vec![if open_to_others {
        Check::warn(
            about,
            format!("`{}` has mode {mode:03o}", folder.display()),
            format!("chmod 700 {}", folder.display()),
        )
    } else {
        Check::ok(about, format!("`{}`, for its owner only", folder.display()))
    }];
    checks.push(free_space(folder, config.free_space_bytes_min));
    checks.extend(archive(config));
    checks.extend(backups(config));
    let holder = storage::lock_holder(folder);
    checks.push(match &holder {
        None => Check::ok("lock", "free"),
        Some(holder) => Check::warn(
            "lock",
            format!("{holder} has the store open"),
            "a second Placet cannot start on this folder",
        ),
    });
    checks.push(sync_speed(folder));
    checks
}

/// The nearest folder above one that is missing.
fn above(folder: &Path) -> &Path {
    folder
        .ancestors()
        .skip(1)
        .map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above })
        .find(|above| above.try_exists().unwrap_or(false))
        .unwrap_or(Path::new("."))
}

/// Whether a folder can be made in another one.
fn can_be_made_in(above: &Path) -> io::Result<()> {
    let tried = above.join(".placet-doctor");
    match fs::create_dir(&tried) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::remove_dir(&tried)),
    }
}

/// A missing data folder: the first start creates it, if it may and its disk has the room.
fn absent(config: &Config) -> Vec<Check> {
    let folder = &config.data;
    let is_embedded = matches!(storage::choice(config, folder), Ok(Choice::Embedded));
    let segment = if is_embedded { SEGMENT_BYTES } else { 0 };
    let mut checks = vec![absent_folder(folder)];
    checks.push(free_space(above(folder), config.free_space_bytes_min.max(segment)));
    checks.extend(backups(config));
    checks
}

fn absent_folder(folder: &Path) -> Check {
    let about = "data folder";
    let above = above(folder);
    match can_be_made_in(above) {
        Ok(()) => Check::ok(
            about,
            format!("`{}` is not there yet; the first start makes it", folder.display()),
        ),
        Err(error) => Check::fail(
            about,
            format!(
                "`{}` is not there, and cannot be made in `{}`: {}",
                folder.display(),
                above.display(),
                error
            ),
            "name another with --data, or give its owner write access",
        ),
    }
}

fn free_space(folder: &Path, bytes_min: u64) -> Check {
    let about = "free space";
    match rustix::fs::statvfs(folder) {
        Err(error) => {
            Check::warn(about, format!("cannot be found out: {error}"), "look at it yourself")
        }
        Ok(volume) => {
            let free = volume.f_bavail.saturating_mul(volume.f_frsize);
            let found = format!("{} MiB", free.div_euclid(1 << 20));
            let least = bytes_min.div_euclid(1 << 20);
            if free < bytes_min {
                let todo = format!("below {least} MiB nothing new is taken: make room");
                Check::fail(about, found, todo)
            } else if free < bytes_min.max(FREE_BYTES_GOOD) {
                Check::warn(about, found, format!("make room before it falls below {least} MiB"))
            } else {
                Check::ok(about, found)
            }
        }
    }
}

/// The archive of old segments, where one is named or used. A start does without it; segments that cannot be moved stay, and take room.
fn archive(config: &Config) -> Option<Check> {
    let about = "archive";
    let waiting = unmoved_segments(&storage::journal_folder(&config.data)).unwrap_or(0);
    let named = config.ledger.archive.clone();
    let folder =
        named.clone().unwrap_or_else(|| storage::store_folder(&config.data).join("archive"));
    let written = tempfile::NamedTempFile::new_in(&folder).map(drop);
    let is_absent = written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let name = folder.display();
    if is_absent && waiting == 0 {
        let found = format!("`{name}` is not there; it is made when segments are moved");
        return named.map(|_| Check::ok(about, found));
    }
    let todo =
        "calls go on; let the process write there, or make room there, and the segments are moved";
    Some(match (written, waiting) {
        (Ok(()), 0) => Check::ok(about, format!("`{name}` can be written")),
        (Ok(()), _) => Check::warn(
            about,
            format!("{waiting} segments wait to be moved to `{name}`"),
            "the next start, or the next time something is archived, moves them",
        ),
        (Err(error), 0) => Check::warn(about, format!("`{name}`: {error}"), todo),
        (Err(error), _) => {
            let found = format!("{waiting} segments wait to be moved to `{name}`: {error}");
            Check::warn(about, found, todo)
        }
    })
}

/// The folder of backups, where one is named. A start does without it.
fn backups(config: &Config) -> Option<Check> {
    let about = "backups";
    let folder = config.ledger.backups.as_ref()?;
    let written = match tempfile::NamedTempFile::new_in(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => can_be_made_in(above(folder)),
        written => written.map(drop),
    };
    let name = folder.display();
    Some(match written {
        Ok(()) => Check::ok(about, format!("`{name}` can be written")),
        Err(error) => Check::warn(
            about,
            format!("`{name}`: {error}"),
            "calls go on, and every backup fails; let the process write there, or name another folder under `ledger.backups`",
        ),
    })
}

/// How many syncs the disk completes per second: every write waits for one.
fn sync_speed(folder: &Path) -> Check {
    let about = "disk sync";
    let measured = || -> io::Result<f64> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let began = Instant::now();
        for _ in 0..SYNCS {
            file.write_all(&[0; 4096])?;
            file.as_file().sync_data()?;
        }
        Ok(f64::from(SYNCS) / began.elapsed().as_secs_f64().max(f64::EPSILON))
    };
    match measured() {
        Err(error) => Check::fail(
            about,
            format!("cannot write: {error}"),
            if error.kind() == io::ErrorKind::StorageFull {
                "make room"
            } else if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
                "mount its file system for writing"
            } else {
                "give the owner of the process write access"
            },
        ),
        Ok(rate) => {
            let found = format!("{rate:.0} syncs per second; calls that arrive together share one");
            if rate < 50.0 {
                Check::warn(
                    about,
                    found,
                    "writes will be slow: use a faster disk for the data folder",
                )
            } else {
                Check::ok(about, found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::checks;
    use crate::{
        commands::doctor::Level,
        config::load::{Config, ConfigArgs},
        environment::Environment,
    };

    #[test]
    fn a_data_folder_that_others_can_read_is_a_warning_and_a_file_in_its_place_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("placet.yaml");
        fs::write(&file, "{}").unwrap();
        let args = ConfigArgs {
            config: Some(file.clone()),
            data: Some(dir.path().join("data")),
            ledger: None,
        };
        let config = Config::load(&args, &Environment::of([])).unwrap();
        assert!(checks(&config).iter().all(|check| check.level != Level::Fail));
        let mut archived = Config::load(&args, &Environment::of([])).unwrap();
        let mut large = Config::load(&args, &Environment::of([])).unwrap();
        let nowhere = ConfigArgs { data: Some("/proc/nowhere/data".into()), ..args };
        let nowhere = Config::load(&nowhere, &Environment::of([])).unwrap();
        assert_eq!(checks(&nowhere)[0].level, Level::Fail, "nothing can be made in /proc");
        // A disk without room fails before the folder is there.
        large.free_space_bytes_min = u64::MAX;
        let found = checks(&large);
        assert!(found.iter().any(|c| c.about == "free space" && c.level == Level::Fail));
        large.ledger.backups = Some("/proc/backups".into());
        let found = checks(&large);
        assert!(found.iter().any(|c| c.about == "backups" && c.level == Level::Warn));
        fs::create_dir(&config.data).unwrap();
        fs::set_permissions(&config.data, fs::Permissions::from_mode(0o755)).unwrap();
        let found = checks(&config);
        assert_eq!(found[0].level, Level::Warn);
        assert!(found.iter().any(|check| check.about == "disk sync" && check.level != Level::Fail));
        assert!(found.iter().all(|check| check.about != "archive"), "none is named or used");
        // Named, and not a folder.
        archived.ledger.archive = Some(file);
        let found = checks(&archived).into_iter().find(|check| check.about == "archive").unwrap();
        assert_eq!(found.level, Level::Warn, "a start does without it");
        fs::remove_dir(&config.data).unwrap();
        fs::write(&config.data, "x").unwrap();
        assert_eq!(checks(&config)[0].level, Level::Fail);
    }
}
