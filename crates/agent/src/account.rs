//! Accounts: which local user a run's processes and files belong to.
//!
//! An agent that runs as root runs each job as the user who submitted it. It looks the user up by name, because
//! accounts have the same uid on all nodes. Any other agent runs all jobs as its own user.
//!
//! Files that a job leaves behind may be malicious. The agent therefore reads them with the user's rights
//! ([`Ids::act`]), and the kernel refuses what the user may not read, even through links.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::hash::Hash;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_shepherd::Credentials;
use nix::unistd::{Gid, Uid, User, geteuid};
use tokio::sync::watch;

use crate::mutex::lock;
use crate::users::restrictions::Restrictions;

/// Uid and gid of the processes that unpack layers of images. Outside of the ranges that Linux distributions and directory
/// services use.
pub(crate) const UNPACKER: u32 = 2_100_000_035;

/// Time that an account lookup is cached, because it may involve a directory server.
const LOOKUP_TTL: Duration = Duration::from_secs(30);

/// Maximum time that a job waits for the creation of its user's account.
const MADE_BOUND: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub ids: Ids,
    /// Home directory, which may not exist.
    pub home: PathBuf,
    pub shell: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

/// Why a run cannot use its user's account. Displays as a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccountError {
    /// The user has no account on this node.
    #[error(
        "this node has no user `{0}`; an administrator can create the account on all nodes: hostler configure user add {0}"
    )]
    Unknown(String),
    /// The user has no account on this node, and the agent could not create one.
    #[error("this node has no user `{name}`, and its agent could not create the account: {why}")]
    NotMade {
        name: String,
        /// The cause, as in the agent's log.
        why: String,
    },
    /// The account's uid on this node differs from its uid in the cluster, so the account may belong to another person.
    #[error(
        "user `{name}` has uid {here} on this node and uid {there} in the cluster, so the account may belong to another person; an administrator can give the \
         account the same uid on all machines, and `hostler configure user list` shows which uids are fixed"
    )]
    OtherUid {
        name: String,
        /// Uid on this machine.
        here: u32,
        /// Uid in the cluster.
        there: u32,
    },
    /// The job's user is root on another node.
    #[error(
        "this node does not run jobs of another node's root; submit the job as another user, or on the head's machine"
    )]
    RootElsewhere,
    /// An admin has blocked the account.
    #[error("an admin has blocked user `{0}` on this cluster")]
    Blocked(String),
    /// Another node sent a remote command for an account with elevated rights, and root on that node may be
    /// impersonating the user.
    #[error(
        "`{0}` runs the head or has a role above user in the cluster; other nodes may not act for such an account, because root there \
         could impersonate the user; an admin can allow it: hostler configure setting roles-through-nodes yes"
    )]
    Guarded(String),
    /// The account is a system account, and no admin has allowed it.
    #[error(
        "system accounts may not run jobs and commands on this cluster, and `{name}` (uid {uid}) is one; an admin can allow it: \
         hostler configure user add {name}, or for all: hostler configure setting system-accounts yes"
    )]
    System { name: String, uid: u32 },
    /// The account has the uid that is reserved for unpacking images.
    #[error(
        "user `{name}` has uid {uid}, with which this node unpacks images; an administrator has to give the account another uid"
    )]
    Unpacker { name: String, uid: u32 },
    /// The agent was not started with `--root-jobs`.
    #[error("this node does not run jobs of root; submit the job as another user, or start its agent with --root-jobs")]
    Root,
    /// The account database does not respond.
    #[error("this node cannot look up user `{name}`: {source}")]
    Lookup { name: String, source: io::Error },
}

/// The accounts that this agent may run jobs as.
#[derive(Debug)]
pub(crate) struct Accounts {
    is_root: bool,
    root_jobs: bool,
    /// The agent's own user, unless it is root.
    own: Option<Arc<Account>>,
    known: LookupCache<String, Arc<Account>>,
    /// User names by uid.
    names: LookupCache<u32, String>,
    /// Errors from creating the accounts in the head's latest complete account list, by user name.
    creation_errors: Mutex<HashMap<String, String>>,
    /// Accounts that run nothing here, as sent by the head.
    restrictions: Mutex<Restrictions>,
    /// The file that keeps the restrictions over a restart.
    file: Option<PathBuf>,
    /// Number of account creations that are queued or running.
    pending_creations: watch::Sender<usize>,
    /// Serializes account creation.
    making: Mutex<()>,
}

/// Guard of a queued or running account creation.
pub(crate) struct CreationGuard(Arc<Accounts>);

impl CreationGuard {
    /// Calls `make`, which creates accounts and returns errors by user name, and stores the errors for later jobs of
    /// these users. Runs one batch at a time. Blocks.
    pub(crate) fn with(self, make: impl FnOnce() -> HashMap<String, String>) {
        let _alone = lock(&self.0.making);
        *lock(&self.0.creation_errors) = make();
    }
}

impl Drop for CreationGuard {
    fn drop(&mut self) {
        self.0.pending_creations.send_modify(|pending_creations| *pending_creations -= 1);
    }
}

/// A cache of account lookups.
#[derive(Debug)]
struct LookupCache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for LookupCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> LookupCache<K, V> {
    fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let answers = lock(&self.0);
        let (since, answer) = answers.get(key)?;
        (since.elapsed() < LOOKUP_TTL).then(|| answer.clone())
    }

    fn put(&self, key: K, answer: V) {
        const MOST: usize = 1000;
        let mut answers = lock(&self.0);
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, (Instant::now(), answer));
    }

    fn forget<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        lock(&self.0).remove(key);
    }
}

impl Accounts {
    /// Allows the accounts that the agent's own user can switch to. Allows root only with `root_jobs`.
    pub(crate) fn new(root_jobs: bool) -> Self {
        Self {
            is_root: geteuid().is_root(),
            root_jobs,
            own: (!geteuid().is_root()).then(|| Arc::new(Account::own())),
            known: LookupCache::default(),
            names: LookupCache::default(),
            creation_errors: Mutex::default(),
            restrictions: Mutex::default(),
            file: None,
            pending_creations: watch::Sender::default(),
            making: Mutex::default(),
        }
    }

    /// Like [`Self::new`], with the restrictions that an earlier agent kept in `file`.
    pub(crate) fn restored(root_jobs: bool, file: PathBuf) -> Self {
        Self { restrictions: Mutex::new(Restrictions::load(&file)), file: Some(file), ..Self::new(root_jobs) }
    }

    /// Why this node does not run each job as the user who submitted it; `None` if it does.
    pub(crate) fn shortcoming(&self) -> Option<String> {
        if self.is_root {
            return None;
        }
        let uid = geteuid();
        let own = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        Some(format!(
            "jobs run as {own}, the agent's user; only an agent that runs as root can run each job as its own user"
        ))
    }

    /// Whether this node refuses jobs of root.
    pub(crate) fn refuse_root(&self) -> bool {
        self.is_root && !self.root_jobs
    }

    /// The user in a sandbox: `account`, or else the agent's own user. A sandbox of root does not exist.
    pub(crate) fn in_sandbox<'a>(&'a self, account: Option<&'a Arc<Account>>) -> Option<&'a Arc<Account>> {
        account.or(self.own.as_ref())
    }

    /// Whether a job of this user acts on files of its own user. An agent that is not root has the rights
    /// of its own user for all jobs.
    pub(crate) fn owns_files(&self, user: &str, uid: Option<u32>) -> bool {
        self.own.as_ref().is_none_or(|own| own.name == user && uid == Some(own.ids.uid))
    }

    /// Whether jobs on this node can run as several users.
    pub(crate) fn has_several_users(&self) -> bool {
        self.is_root
    }

    /// Returns the account for a run of `user`, or `None` for the agent's own user. `uid` is the user's uid in the
    /// cluster, if known. Waits for a missing account while accounts are being created.
    ///
    /// # Errors
    /// If the user is blocked, has no account or another uid on this node, is a system account that no admin has allowed,
    /// or is root while root jobs are off.
    pub(crate) async fn of(&self, user: &str, uid: Option<u32>) -> Result<Option<Arc<Account>>, AccountError> {
        self.check_not_blocked(user, uid)?;
        if !self.is_root {
            // All jobs run as the agent's own user, so no account is looked up: the uid of the submission counts.
            return uid.map_or(Ok(()), |uid| self.check_may_command(user, uid)).map(|()| None);
        }
        // Subscribe before the lookup, to notice accounts that are created in the meantime.
        let mut making = self.pending_creations.subscribe();
        let was_at_work = *making.borrow_and_update() > 0;
        let account = match self.look_up(user).await {
            Err(AccountError::Unknown(_)) if was_at_work || making.has_changed().unwrap_or(false) => {
                let _ = tokio::time::timeout(MADE_BOUND, making.wait_for(|pending_creations| *pending_creations == 0))
                    .await;
                self.look_up(user).await
            }
            found => found,
        };
        let account = account.map_err(|error| self.explained(error))?;
        let here = account.ids.uid;
        if let Some(there) = uid.filter(|there| *there != here) {
            // The uid may be corrected at any time.
            self.known.forget(user);
            return Err(AccountError::OtherUid { name: user.to_owned(), here, there });
        }
        if here == UNPACKER {
            return Err(AccountError::Unpacker { name: user.to_owned(), uid: here });
        }
        if !lock(&self.restrictions).system.allow(here) {
            return Err(AccountError::System { name: user.to_owned(), uid: here });
        }
        match (here, self.root_jobs) {
            (0, false) => Err(AccountError::Root),
            (0, true) => Ok(None),
            _ => Ok(Some(account)),
        }
    }

    /// Returns the account of a run that this node has started, or `None` for the agent's own user. Unlike [`Self::of`], also if
    /// the user was blocked meanwhile: what is left of the run must go.
    ///
    /// # Errors
    /// If the user's account is gone, or its uid has changed.
    pub(crate) async fn of_started(&self, user: &str, uid: Option<u32>) -> Result<Option<Arc<Account>>, AccountError> {
        if !self.is_root {
            return Ok(None);
        }
        let account = self.look_up(user).await?;
        let here = account.ids.uid;
        match uid.filter(|there| *there != here) {
            Some(there) => Err(AccountError::OtherUid { name: user.to_owned(), here, there }),
            None => Ok((here != 0).then_some(account)),
        }
    }

    /// Replaces the restrictions, and keeps them over a restart.
    pub(crate) fn restrict(&self, new: Restrictions) {
        let mut restrictions = lock(&self.restrictions);
        if *restrictions == new {
            return;
        }
        *restrictions = new;
        if let Some(file) = &self.file
            && let Err(error) = restrictions.store(file)
        {
            tracing::warn!(
                file = %file.display(), %error,
                "cannot store which accounts are blocked; a restarted agent does not know it until the head sends it"
            );
        }
    }

    /// Refuses a blocked account, identified by name or uid.
    ///
    /// # Errors
    /// [`AccountError::Blocked`].
    pub(crate) fn check_not_blocked(&self, user: &str, uid: Option<u32>) -> Result<(), AccountError> {
        let blocked = &lock(&self.restrictions).blocked;
        let is_blocked = blocked.iter().any(|account| account.name.as_str() == user || Some(account.uid) == uid);
        if is_blocked { Err(AccountError::Blocked(user.to_owned())) } else { Ok(()) }
    }

    /// Refuses an account for which other nodes may not act.
    ///
    /// # Errors
    /// [`AccountError::Guarded`].
    pub(crate) fn check_not_guarded(&self, user: &str, uid: u32) -> Result<(), AccountError> {
        if lock(&self.restrictions).guarded.contains(&uid) {
            Err(AccountError::Guarded(user.to_owned()))
        } else {
            Ok(())
        }
    }

    /// Refuses remote commands of blocked accounts, and of system accounts that the head has not allowed. The account of
    /// the agent itself needs no permission.
    ///
    /// # Errors
    /// [`AccountError::Blocked`] or [`AccountError::System`].
    pub(crate) fn check_may_command(&self, user: &str, uid: u32) -> Result<(), AccountError> {
        self.check_not_blocked(user, Some(uid))?;
        if lock(&self.restrictions).system.allow(uid) || geteuid().as_raw() == uid {
            return Ok(());
        }
        Err(AccountError::System { name: user.to_owned(), uid })
    }

    async fn look_up(&self, user: &str) -> Result<Arc<Account>, AccountError> {
        if let Some(account) = self.known.get(user) {
            return Ok(account);
        }
        let name = user.to_owned();
        // The lookup may take long.
        let found = tokio::task::spawn_blocking(move || Account::named(&name)).await;
        let account = Arc::new(found.map_err(|error| lookup(user, error.into()))??);
        self.known.put(account.name.clone(), Arc::clone(&account));
        Ok(account)
    }

    /// Marks account creation as pending until the returned guard is dropped.
    pub(crate) fn begin_creation(self: &Arc<Self>) -> CreationGuard {
        self.pending_creations.send_modify(|pending_creations| *pending_creations += 1);
        CreationGuard(Arc::clone(self))
    }

    /// Adds the cause to the error if the creation of the account failed.
    fn explained(&self, error: AccountError) -> AccountError {
        let AccountError::Unknown(name) = error else { return error };
        match lock(&self.creation_errors).get(&name) {
            Some(why) => AccountError::NotMade { name, why: why.clone() },
            None => AccountError::Unknown(name),
        }
    }

    /// Uid that runs of `user` have, if known without a lookup.
    pub(crate) fn uid_of(&self, user: &str) -> Option<u32> {
        if self.is_root { Some(self.known.get(user)?.ids.uid) } else { Some(geteuid().as_raw()) }
    }

    /// Whether a user may have an account on this machine. A failed lookup counts as yes, because a directory server may be
    /// unavailable. An agent that does not run as root serves its own user only, who needs no account.
    pub(crate) async fn may_have_account(&self, uid: u32) -> bool {
        if !self.is_root || self.names.get(&uid).is_some() {
            return true;
        }
        let found = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid))).await;
        !matches!(found, Ok(Ok(None)))
    }

    /// Name of a user; without a name, the uid as text.
    pub(crate) async fn name_of(&self, uid: u32) -> String {
        self.known_name(uid).await.unwrap_or_else(|| uid.to_string())
    }

    /// Name of a user, cached for [`LOOKUP_TTL`]; `None` if the uid has no account.
    pub(crate) async fn known_name(&self, uid: u32) -> Option<String> {
        if let Some(name) = self.names.get(&uid) {
            return Some(name);
        }
        let name = found_name(uid).await?;
        self.names.put(uid, name.clone());
        Some(name)
    }
}

impl Account {
    /// Looks up an account by name. May block for a long time.
    fn named(name: &str) -> Result<Self, AccountError> {
        match User::from_name(name) {
            Ok(Some(user)) => Self::from_user(user).map_err(|source| lookup(name, source)),
            // No account can have such a name.
            Ok(None) if name.starts_with("root@") => Err(AccountError::RootElsewhere),
            Ok(None) => Err(AccountError::Unknown(name.to_owned())),
            Err(errno) => Err(lookup(name, errno.into())),
        }
    }

    /// Looks up an account by uid; `None` if there is none. May block for a long time.
    pub(crate) fn numbered(uid: u32) -> io::Result<Option<Self>> {
        User::from_uid(Uid::from_raw(uid))?.map(Self::from_user).transpose()
    }

    /// The agent's own user, also without an entry in the account database.
    fn own() -> Self {
        let groups = nix::unistd::getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
        let ids = Ids { uid: geteuid().as_raw(), gid: nix::unistd::getegid().as_raw(), groups };
        match User::from_uid(geteuid()) {
            Ok(Some(user)) => Self { name: user.name, ids, home: user.dir, shell: user.shell },
            _ => Self { name: ids.uid.to_string(), ids, home: PathBuf::from("/"), shell: PathBuf::from("/bin/sh") },
        }
    }

    fn from_user(user: User) -> io::Result<Self> {
        let name = CString::new(user.name.as_str())?;
        let groups = nix::unistd::getgrouplist(&name, user.gid)?.into_iter().map(Gid::as_raw).collect();
        let ids = Ids { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups };
        Ok(Self { name: user.name, ids, home: user.dir, shell: user.shell })
    }

    pub(crate) fn credentials(&self) -> Credentials {
        let Ids { uid, gid, groups } = self.ids.clone();
        Credentials { name: self.name.clone(), uid, gid, groups }
    }
}

async fn found_name(uid: u32) -> Option<String> {
    // A directory server may be slow.
    let found = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid)).ok().flatten()).await;
    found.ok().flatten().map(|user| user.name)
}

fn lookup(name: &str, source: io::Error) -> AccountError {
    AccountError::Lookup { name: name.to_owned(), source }
}

impl Ids {
    /// Owner of a directory; `None` if the agent's own user owns the directory. Only root can give a directory to
    /// another user.
    pub(crate) fn of_directory(path: &Path) -> io::Result<Option<Self>> {
        let metadata = fs::symlink_metadata(path)?;
        let is_other = metadata.uid() != geteuid().as_raw();
        Ok(is_other.then(|| Self { uid: metadata.uid(), gid: metadata.gid(), groups: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use hostler_proto::link::SystemAccounts;

    use super::*;

    #[tokio::test]
    async fn name_lookups_are_cached_but_misses_are_not() {
        const NOBODYS: u32 = 4_000_000_001;
        let accounts = Accounts::new(false);
        assert_eq!(accounts.name_of(0).await, "root");
        assert_eq!(accounts.name_of(NOBODYS).await, NOBODYS.to_string());
        assert_eq!((accounts.names.get(&0), accounts.names.get(&NOBODYS)), (Some("root".to_owned()), None));
        assert!(accounts.may_have_account(0).await);
        assert_eq!(accounts.may_have_account(NOBODYS).await, !geteuid().is_root());
    }

    #[test]
    fn missing_account_errors_state_cause_and_remedy() {
        let error = Account::named("no-such-user-here").expect_err("the user does not exist").to_string();
        assert!(error.contains("no user `no-such-user-here`") && error.contains("configure user add"), "{error}");
        let accounts = Arc::new(Accounts::new(false));
        let unknown = || AccountError::Unknown("no-such-user-here".to_owned());
        assert!(matches!(accounts.explained(unknown()), AccountError::Unknown(_)));
        let why = [("no-such-user-here".to_owned(), "uid 2000 is ben's here".to_owned())];
        accounts.begin_creation().with(|| why.into());
        let error = accounts.explained(unknown()).to_string();
        assert!(error.ends_with("could not create the account: uid 2000 is ben's here"), "{error}");
        let root = Account::named("root").expect("every system has the account");
        assert_eq!((root.ids.uid, root.name.as_str()), (0, "root"));
    }

    #[test]
    fn files_of_an_agent_that_is_not_root_belong_to_its_name_and_uid() {
        let ids = Ids { uid: 1000, gid: 1000, groups: Vec::new() };
        let own = Account { name: "ada".into(), ids, home: "/home/ada".into(), shell: "/bin/sh".into() };
        let accounts = Accounts { own: Some(Arc::new(own)), ..Accounts::new(false) };
        assert!(accounts.owns_files("ada", Some(1000)));
        for (name, uid) in [("ben", Some(1000)), ("ada", Some(1001)), ("ada", None), ("ada@n2", Some(1000))] {
            assert!(!accounts.owns_files(name, uid), "{name} {uid:?}");
        }
        let of_root = Accounts { own: None, ..accounts };
        assert!(of_root.owns_files("ben", Some(1001)), "each job has the rights of its user");
    }

    /// Needs root.
    #[tokio::test]
    async fn account_with_a_different_uid_is_refused() {
        let accounts = Accounts::new(false);
        accounts.restrict(Restrictions { system: SystemAccounts::All, ..Restrictions::default() });
        let here = Account::named("nobody").expect("every system has the account").ids.uid;
        for uid in [None, Some(here)] {
            let account = accounts.of("nobody", uid).await.expect("uids match").expect("another user");
            assert_eq!(account.ids.uid, here);
        }
        let error = accounts.of("nobody", Some(4711)).await.expect_err("the uid differs").to_string();
        assert!(error.contains(&format!("has uid {here} on this node and uid 4711 in the cluster")), "{error}");
    }

    #[tokio::test]
    async fn blocked_accounts_are_refused_until_unblocked() {
        let accounts = Accounts::new(false);
        let blocked = |name: &str, uid| hostler_proto::link::Account { name: name.parse().expect("a name"), uid };
        let restrict = |blocked| accounts.restrict(Restrictions { blocked: vec![blocked], ..Restrictions::default() });
        restrict(blocked("nobody", 65534));
        // Matches by name, and by uid under another name.
        for (name, uid) in [("nobody", None), ("nobody", Some(1)), ("daemon", Some(65534))] {
            let refused = accounts.of(name, uid).await.expect_err("the account is blocked");
            assert!(matches!(refused, AccountError::Blocked(_)), "{refused}");
        }
        let of_started =
            accounts.of_started("nobody", None).await.expect("the containers of blocked users are still removed");
        assert_eq!(of_started.map(|account| account.name.clone()), geteuid().is_root().then(|| "nobody".to_owned()));
        restrict(blocked("games", 5));
        assert!(!matches!(accounts.of("nobody", None).await, Err(AccountError::Blocked(_))));
    }

    /// Needs root.
    #[tokio::test]
    async fn system_accounts_are_refused_unless_the_head_allows_them() {
        let accounts = Accounts::new(false);
        let nobody = Account::named("nobody").expect("every system has the account").ids.uid;
        let is_refused = |error: AccountError| matches!(error, AccountError::System { uid, .. } if uid == nobody);
        let allow = |system| accounts.restrict(Restrictions { system, ..Restrictions::default() });
        for allowed in [SystemAccounts::default(), SystemAccounts::Only(vec![1])] {
            allow(allowed);
            assert!(accounts.check_may_command("nobody", nobody).is_err_and(is_refused));
            assert!(accounts.of("nobody", Some(nobody)).await.is_err_and(is_refused));
            // The uid of the account counts, not that of the message.
            assert!(accounts.of("nobody", None).await.is_err_and(is_refused));
        }
        for allowed in [SystemAccounts::All, SystemAccounts::Only(vec![1, nobody])] {
            allow(allowed);
            accounts.check_may_command("nobody", nobody).expect("allowed");
            accounts.of("nobody", Some(nobody)).await.expect("allowed");
        }
        // An agent of another user looks up no account: the uid of the message counts.
        let own = Accounts { is_root: false, ..Accounts::new(false) };
        assert!(own.of("nobody", Some(nobody)).await.is_err_and(is_refused));
        own.restrict(Restrictions { system: SystemAccounts::All, ..Restrictions::default() });
        assert_eq!(own.of("nobody", Some(nobody)).await.expect("allowed"), None);
        allow(SystemAccounts::default());
        for uid in [0, 1_000, 65_533, 65_535] {
            accounts.check_may_command("ada", uid).expect("not a system account");
        }
    }

    #[test]
    fn restrictions_apply_after_a_restart_of_the_agent() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("accounts.json");
        let restarted = || Accounts::restored(false, file.clone());
        let first = restarted();
        first.check_not_guarded("ada", 2000).expect("the head has said nothing yet");
        assert!(matches!(first.check_may_command("mail", 8), Err(AccountError::System { .. })));
        let blocked = vec![hostler_proto::link::Account { name: "eve".parse().expect("a name"), uid: 3000 }];
        first.restrict(Restrictions { blocked, guarded: vec![2000], system: SystemAccounts::Only(vec![8]) });

        let second = restarted();
        assert!(matches!(second.check_not_blocked("eve", None), Err(AccountError::Blocked(_))));
        assert!(matches!(second.check_not_guarded("ada", 2000), Err(AccountError::Guarded(_))));
        second.check_may_command("mail", 8).expect("allowed");
        assert!(matches!(second.check_may_command("games", 5), Err(AccountError::System { .. })));
        second.restrict(Restrictions::default());
        restarted().check_not_guarded("ada", 2000).expect("no longer guarded");

        fs::write(&file, "{").expect("writable");
        assert!(matches!(restarted().check_may_command("mail", 8), Err(AccountError::System { .. })));
    }

    /// Needs root.
    #[tokio::test]
    async fn missing_account_is_awaited_during_account_creation() {
        let accounts = Arc::new(Accounts::new(false));
        let making = accounts.begin_creation();
        let mut asked = Box::pin(accounts.of("no-such-user-here", None));
        assert!(
            tokio::time::timeout(Duration::from_millis(100), &mut asked).await.is_err(),
            "the account may still be created"
        );
        making.with(|| [("no-such-user-here".to_owned(), "no room".to_owned())].into());
        let error = asked.await.expect_err("no account was created");
        assert!(matches!(&error, AccountError::NotMade { why, .. } if why == "no room"), "{error}");
    }
}
