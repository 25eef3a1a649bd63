//! The file of what was hot: what it keeps, and what it makes of bytes that others wrote.

use super::*;

const HOT: [Hot; 3] = [(2, 7, 9.5), (0, 1, 3.25), (1, 0, 0.5)];

fn file(folder: &Path, identity: u8) -> WarmFile {
    WarmFile::new(folder, [identity; 32], 3, 8)
}

#[test]
fn what_was_hot_comes_back_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(&folder.path().join("a/b"), 1);
    assert_eq!(file.load().unwrap(), []);
    file.save(&HOT).unwrap();
    assert_eq!(file.load().unwrap(), HOT);
    file.save(&HOT[..1]).unwrap();
    assert_eq!(file.load().unwrap(), HOT[..1]);
    assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1, "nothing half written is left");
}

#[cfg(unix)]
#[test]
fn folder_and_file_are_for_this_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = file(&folder.path().join("a/b"), 1);
    file.save(&HOT).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    assert_eq!(mode(file.path()), 0o600);
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), 1);
    file.save(&HOT).unwrap();
    let sound = fs::read(file.path()).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        assert!(file.decode(&bytes).is_err(), "byte {at}");
        assert!(file.decode(&sound[..at]).is_err(), "cut at {at}");
    }
    fs::write(file.path(), [sound, vec![0; 10_000_000]].concat()).unwrap();
    assert!(matches!(file.load(), Err(WarmError::Invalid { .. })));
}

#[test]
fn entries_that_make_no_sense_are_refused_even_with_a_right_sum() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), 1);
    for hot in [[(3, 0, 1.0); 1].to_vec(), vec![(0, 1, f32::NAN)], vec![(0, 1, -1.0)], vec![(0, 1, 1.0), (0, 1, 2.0)]] {
        file.save(&hot).unwrap();
        assert!(matches!(file.load(), Err(WarmError::Invalid { .. })), "{hot:?}");
    }
    let without_experts = WarmFile::new(folder.path(), [2; 32], 3, 0);
    assert!(without_experts.decode(&without_experts.encode(&[(0, 0, 1.0)])).is_err());
}

#[test]
fn the_file_of_another_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (file(folder.path(), 1), file(folder.path(), 2));
    one.save(&HOT).unwrap();
    assert_eq!(other.load().unwrap(), []);
    fs::copy(one.path(), other.path()).unwrap();
    let error = other.load().unwrap_err().to_string();
    assert!(error.contains("not of this model"), "{error}");
    assert!(WarmFile::new(folder.path(), [1; 32], 8, 3).load().is_err(), "of another shape");
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("taken"), "").unwrap();
    let file = file(&folder.path().join("taken/warm"), 1);
    assert!(matches!(file.load(), Ok(_) | Err(WarmError::Read { .. })));
    let error = file.save(&HOT).unwrap_err().to_string();
    assert!(error.contains("turn the warm start off"), "{error}");
}

#[test]
fn writers_and_readers_at_once_see_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    let sets: Vec<Vec<Hot>> = (1..4).map(|n| (0..n).map(|expert| (expert as usize, expert, 1.0)).collect()).collect();
    let file = file(folder.path(), 1);
    file.save(&sets[0]).unwrap();
    std::thread::scope(|scope| {
        for set in &sets {
            scope.spawn(|| (0..100).for_each(|_| file.save(set).unwrap()));
        }
        for _ in 0..200 {
            assert!(sets.contains(&file.load().unwrap()));
        }
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn with_too_many_models_the_oldest_are_forgotten_and_other_files_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("letter.txt");
    fs::write(&other, "mine").unwrap();
    let old = SystemTime::UNIX_EPOCH;
    File::options().append(true).open(&other).unwrap().set_modified(old).unwrap();
    for identity in 0..=MAX_FILES as u8 {
        let file = file(folder.path(), identity);
        file.save(&HOT).unwrap();
        if identity == 7 {
            File::options().append(true).open(file.path()).unwrap().set_modified(old).unwrap();
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MAX_FILES + 1);
    assert!(!file(folder.path(), 7).path().exists());
    assert!(other.exists() && file(folder.path(), 0).path().exists());
}
