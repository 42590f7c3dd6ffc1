//! Tests with several users of one node. They need root and the default accounts of Debian.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hostler_project::{ProjectError, Requirements};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{User, mkfifo};

use super::super::files::{copy_regular, give, write_new};
use super::super::{BuildSandbox, Environments, Settings};
use super::{GIB, Place, Unconfined, detect, import, obtain, real_uv};
use crate::account::Account;

/// A package whose installation runs code that records the user who installs the package.
const TELLING: [(&str, &str); 3] = [
    ("requirements.txt", "./telling\n"),
    ("telling/pyproject.toml", "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"),
    (
        "telling/setup.py",
        "import os\nfrom setuptools import setup\n\
         os.makedirs('telling', exist_ok=True)\n\
         open('telling/__init__.py', 'w').write('who = %r' % ((os.getuid(), os.getgroups(), os.environ['HOME']),))\n\
         setup(name='telling', version='1', packages=['telling'])\n",
    ),
];

fn account(name: &str) -> Arc<Account> {
    let uid = User::from_name(name).expect("readable").expect("every Debian has this user").uid.as_raw();
    Arc::new(Account::numbered(uid).expect("readable").expect("the account was just found"))
}

fn settings() -> Settings {
    let mut settings = Settings::new(100 * GIB);
    // The Python next to uv may be accessible only for root, and is skipped then.
    let beside = real_uv().parent().expect("a program lies in a folder");
    settings.search_path = format!("{}:/usr/local/bin:/usr/bin:/bin", beside.display()).into();
    settings
}

/// Gives everything below `path` to a user.
fn chown_tree(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    lchown(path, Some(uid), Some(gid))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            chown_tree(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}

/// Gives the project to a user.
fn hand_over(place: &Place, user: &Account) {
    open_to_all(place.dir.path());
    chown_tree(&place.project(), user.ids.uid, user.ids.gid).expect("needs root");
    fs::set_permissions(place.project(), Permissions::from_mode(0o700)).expect("root has permission");
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o711)).expect("this test owns the path");
}

fn detect_as(place: &Place, user: &Account) -> Result<Option<Requirements>, ProjectError> {
    user.ids.act(|| detect(&place.project(), "main.py")).expect("needs root")
}

fn environments(place: &Place) -> Environments {
    Environments::open(&place.root(), settings(), BuildSandbox::default()).expect("the cache opens")
}

#[test]
fn each_user_builds_a_private_environment_once() {
    let place = Place::with(&TELLING);
    let environments = environments(&place);
    let mut leases = Vec::new();
    for user in ["games", "news"].map(account) {
        hand_over(&place, &user);
        let requirements =
            detect_as(&place, &user).expect("the project is valid").expect("the project has requirements");
        let cache = environments.of(Some(&user), false).expect("the cache opens");
        let lease = obtain(&cache, &requirements).expect("the environment can be built");
        assert!(lease.built);
        let told =
            fs::read_to_string(Path::new(&import(&lease, "telling").expect("installed"))).expect("root has permission");
        assert_eq!(told, format!("who = ({}, [], '{}')", user.ids.uid, user.home.display()));
        assert!(
            !obtain(&cache, &requirements).expect("the environment is ready").built,
            "one build for all of this user's jobs"
        );
        leases.push((user, lease));
    }
    let [(ada, mine), (bob, other)] = leases.try_into().map_err(|_| "two").expect("two users");
    assert_ne!(mine.path, other.path);
    let reach = |user: &Account, path: &Path| user.ids.act(|| fs::read_dir(path).is_ok()).expect("needs root");
    assert!(reach(&ada, &mine.path) && reach(&bob, &other.path));
    assert!(!reach(&bob, &mine.path) && !reach(&ada, &other.path));
    // The user cannot change the marker and the pins.
    let env = mine.path.parent().and_then(Path::parent).expect("the environment is in the cache");
    for name in ["ready", "last_used", "users/x"] {
        let written = ada.ids.act(|| fs::write(env.join(name), "forged").is_ok()).expect("needs root");
        assert!(!written, "{name}");
    }
    // No user can hold the agent's locks, or read which programs the agent has found.
    let cache = place.root().join(format!("users/{}", ada.ids.uid));
    for name in [format!("locks/{}", mine.key), "downloads.lock".to_owned(), "tools.json".to_owned()] {
        assert!(cache.join(&name).exists(), "{name}");
        assert!(!ada.ids.act(|| fs::File::open(cache.join(&name)).is_ok()).expect("needs root"), "{name}");
    }
}

#[test]
fn project_is_read_with_the_rights_of_its_user() {
    let place = Place::with(&[("main.py", "")]);
    let ada = account("games");
    let secret = place.path("secret");
    fs::write(&secret, "for root's eyes only").expect("this test owns the path");
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("this test owns the path");
    hand_over(&place, &ada);
    // Simulates a kernel that does not protect hard links.
    fs::hard_link(&secret, place.project().join("requirements.txt")).expect("root has permission");
    let error = detect_as(&place, &ada).expect_err("the user may not read the file");
    assert!(!format!("{error:?}").contains("eyes"), "{error:?}");
    fs::remove_file(place.project().join("requirements.txt")).expect("root has permission");
    mkfifo(&place.project().join("requirements.txt"), Mode::S_IRWXU).expect("root has permission");
    chown_tree(&place.project(), ada.ids.uid, ada.ids.gid).expect("needs root");
    detect_as(&place, &ada).expect_err("a pipe is refused");
}

#[test]
fn cleanup_of_downloads_replaced_by_a_link_removes_nothing_of_others() {
    let place = Place::with(&[("main.py", "")]);
    open_to_all(place.dir.path());
    let precious = place.path("precious");
    fs::create_dir(&precious).expect("this test owns the path");
    fs::write(precious.join("file"), [7; 4096]).expect("this test owns the path");
    let ada = account("games");
    let tight = Environments::open(&place.root(), Settings { cap_bytes: 1, ..settings() }, BuildSandbox::default())
        .expect("the cache opens");
    let cache = tight.of(Some(&ada), false).expect("the cache opens");
    cache.make_downloads().expect("the disk has space");
    let downloads = place.root().join(format!("users/{}/downloads", ada.ids.uid));
    assert_eq!(fs::metadata(&downloads).expect("the path exists").uid(), ada.ids.uid);
    // A package of a sandboxed job may lead there too, although it cannot reach the place itself.
    let own = place.path("own");
    let attack = || {
        fs::rename(downloads.join("uv"), downloads.join("old"))?;
        symlink(&precious, downloads.join("uv"))?;
        fs::rename(downloads.join("python"), downloads.join("older"))?;
        symlink(&own, downloads.join("python"))?;
        fs::write(downloads.join("old/mine"), [7; 4096])
    };
    fs::create_dir(&own).expect("this test owns the path");
    fs::write(own.join("file"), [7; 4096]).expect("this test owns the path");
    chown_tree(&own, ada.ids.uid, ada.ids.gid).expect("needs root");
    ada.ids.act(attack).expect("needs root").expect("the user owns the path");
    assert!(cache.collect(&Unconfined::default()).downloads_reduced);
    assert!(precious.join("file").exists(), "files that only root may remove still exist");
    assert!(own.join("file").exists(), "the user's files elsewhere still exist");
    assert!(!downloads.join("old/mine").exists(), "the user's own files are removed");
}

#[test]
fn build_that_leaves_read_only_directories_succeeds() {
    // Each build runs `setup.py` several times.
    let setup = "import os\nfrom setuptools import setup\nleft = f'left-{os.getpid()}'\nos.makedirs(f'{left}/below')\n\
                 for path in f'{left}/below', left:\n    os.chmod(path, 0o555)\n\
                 setup(name='mine', version='1', py_modules=['mine'])\n";
    let place = Place::with(&[("requirements.txt", "./mine\n"), ("mine/mine.py", ""), ("mine/setup.py", setup)]);
    let ada = account("games");
    hand_over(&place, &ada);
    let requirements = detect_as(&place, &ada).expect("the project is valid").expect("it has requirements");
    let cache = environments(&place).of(Some(&ada), false).expect("the cache opens");
    let lease = obtain(&cache, &requirements).expect("the package can be installed");
    assert!(import(&lease, "mine").is_some());
    let attempt = lease.path.parent().expect("the environment is in an attempt");
    assert!(!attempt.join("work").exists() && !attempt.join("tmp").exists(), "the files of the build are removed");
}

#[test]
fn environments_of_removed_accounts_are_removed() {
    let place = Place::with(&[("main.py", "")]);
    let left = place.root().join("users/54321");
    fs::create_dir_all(left.join("envs")).expect("this test owns the path");
    drop(environments(&place));
    assert!(!left.exists());
}

#[test]
fn broken_cache_of_one_user_does_not_affect_others() {
    let place = Place::with(&[("main.py", ""), ("requirements.txt", "")]);
    open_to_all(place.dir.path());
    let (ada, bob) = (account("games"), account("news"));
    for user in [&ada, &bob] {
        let cache = environments(&place).of(Some(user), false).expect("the cache opens");
        cache.make_downloads().expect("the disk has space");
    }
    let of = |user: &Account| place.root().join(format!("users/{}", user.ids.uid));
    // Damage that the user can cause.
    let attack = || {
        fs::remove_dir(of(&ada).join("downloads/uv"))?;
        fs::write(of(&ada).join("downloads/uv"), "no directory")?;
        fs::remove_dir(of(&ada).join("downloads/python"))?;
        symlink("/nowhere/at/all", of(&ada).join("downloads/python"))
    };
    ada.ids.act(attack).expect("needs root").expect("the user owns the path");
    let cache = environments(&place).of(Some(&ada), false).expect("damaged downloads are tolerated");
    cache.make_downloads().expect("damaged downloads are tolerated");
    // Damage that only a broken disk can cause.
    fs::remove_dir(of(&ada).join("envs")).expect("root has permission");
    fs::write(of(&ada).join("envs"), "no directory").expect("root has permission");
    let environments = environments(&place);
    let error = environments.of(Some(&ada), false).err().expect("the cache is damaged");
    assert!(error.to_string().contains("/envs"), "{error}");
    environments.of(Some(&bob), false).expect("another cache is intact");
    environments.of(None, false).expect("the agent's own cache is intact");
    environments.release("1_0.1.1").expect("pins in intact caches are removed");
}

#[test]
fn copying_a_pipe_fails_without_blocking() {
    let place = Place::new();
    mkfifo(&place.path("uv.lock"), Mode::S_IRWXU).expect("this test owns the path");
    let copy = |most| copy_regular(&place.path("uv.lock"), &place.path("copy"), most);
    assert_eq!(copy(10).expect_err("a pipe").to_string(), "not a regular file");
    fs::remove_file(place.path("uv.lock")).expect("this test owns the path");
    fs::write(place.path("uv.lock"), "12345").expect("this test owns the path");
    copy(5).expect("short enough");
    fs::remove_file(place.path("copy")).expect("this test owns the path");
    assert_eq!(copy(4).expect_err("too long").kind(), std::io::ErrorKind::FileTooLarge);
}

#[test]
fn writing_to_a_pipe_or_a_link_fails_without_blocking() {
    let place = Place::new();
    mkfifo(&place.path("pipe"), Mode::S_IRWXU).expect("this test owns the path");
    symlink("missing", place.path("link")).expect("this test owns the path");
    for name in ["pipe", "link"] {
        let error = write_new(&place.path(name), b"text").expect_err("the name is taken");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
    }
    write_new(&place.path("new"), b"text").expect("this test owns the path");
    assert_eq!(fs::read(place.path("new")).expect("written"), b"text");
    assert!(!place.path("missing").exists());
}

#[test]
fn directories_of_a_cache_are_closed_to_other_users() {
    let place = Place::with(&[("main.py", "")]);
    open_to_all(place.dir.path());
    let ada = account("games");
    let of = |name: &str| place.root().join(format!("users/{}/{name}", ada.ids.uid));
    let mode = |name: &str| fs::metadata(of(name)).expect("the path exists").mode() & 0o7777;
    let open = || {
        let cache = environments(&place).of(Some(&ada), false).expect("the cache opens");
        cache.make_downloads().expect("the disk has space");
    };
    let directories = [("locks", 0o700), ("envs", 0o711), ("downloads", 0o700)];
    open();
    assert_eq!(directories.map(|(name, _)| mode(name)), directories.map(|(_, mode)| mode));
    // Earlier releases left these modes.
    fs::write(of("tools.json"), "{}").expect("root has permission");
    for (name, loose) in [("locks", 0o755), ("envs", 0o755), ("downloads", 0o755), ("tools.json", 0o644)] {
        fs::set_permissions(of(name), Permissions::from_mode(loose)).expect("root has permission");
    }
    open();
    assert_eq!(directories.map(|(name, _)| mode(name)), directories.map(|(_, mode)| mode));
    assert_eq!(mode("tools.json"), 0o600);
    let owner = |name: &str| fs::metadata(of(name)).expect("the path exists").uid();
    assert_eq!(["envs", "downloads", "downloads/uv"].map(owner), [0, ada.ids.uid, ada.ids.uid]);
}

#[test]
fn deeply_nested_includes_and_toml_are_refused() {
    let place = Place::with(&[("main.py", "")]);
    for number in 0..20_000 {
        let name = if number == 0 { "requirements.txt".to_owned() } else { format!("{number}.txt") };
        fs::write(place.project().join(name), format!("-r {}.txt\n", number + 1)).expect("this test owns the path");
    }
    // The stack size of a runtime thread.
    let project = place.project();
    let on_small_stack = move || {
        let error = detect(&project, "main.py").expect_err("too deep");
        assert!(error.to_string().contains("include each other more than 64 deep"), "{error}");
        fs::remove_file(project.join("requirements.txt")).expect("this test owns the path");
        let deep = format!("[project]\nname = 'x'\ndependencies = {}{}\n", "[".repeat(200_000), "]".repeat(200_000));
        fs::write(project.join("pyproject.toml"), deep).expect("this test owns the path");
        detect(&project, "main.py").expect_err("no list of strings");
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(on_small_stack)
        .expect("the disk has space")
        .join()
        .expect("the thread does not panic");
}

/// While root gives a directory away, its new owner exchanges an entry with a link to a directory of root.
#[test]
fn giving_a_directory_never_follows_entries_that_its_new_owner_exchanges() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    open_to_all(folder.path());
    let user = account("games");
    let (secret, evil) = (folder.path().join("secret"), folder.path().join("evil"));
    fs::create_dir(&secret).expect("new");
    fs::write(secret.join("key"), "secret").expect("writable");
    let top = folder.path().join("top");
    fs::create_dir_all(top.join("entry/below")).expect("new");
    give(&top, &[&top.join("entry")], user.ids.uid, user.ids.gid).expect("needs root");
    let owner = |path: &str| fs::symlink_metadata(folder.path().join(path)).expect("there").uid();
    let uid = user.ids.uid;
    assert_eq!(["top", "top/entry", "top/entry/below"].map(owner), [uid, uid, 0], "only the named entries");
    hostler_snapshot::remove_tree(&top).expect("needs root");
    for _ in 0..300 {
        fs::create_dir(&evil).expect("new");
        fs::set_permissions(&evil, Permissions::from_mode(0o777)).expect("the test owns it");
        symlink(&secret, evil.join("link")).expect("new");
        let inside = top.join("entry");
        fs::create_dir_all(&inside).expect("new");
        let (is_over, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                user.ids.act(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        is_ready.store(true, Ordering::Relaxed);
                        let exchange = RenameFlags::RENAME_EXCHANGE;
                        let _ = renameat2(AT_FDCWD, &inside, AT_FDCWD, &evil.join("link"), exchange);
                    }
                })
            });
            while !is_ready.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let given = give(&top, &[&inside], user.ids.uid, user.ids.gid);
            is_over.store(true, Ordering::Relaxed);
            given.expect("needs root");
        });
        for path in [&secret, &secret.join("key")] {
            assert_eq!(fs::symlink_metadata(path).expect("there").uid(), 0, "the user owns {}", path.display());
        }
        for path in [&top, &evil] {
            hostler_snapshot::remove_tree(path).expect("needs root");
        }
    }
}
