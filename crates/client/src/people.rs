//! Routes for admins: users, groups and the audit log.

use hostler_model::{Quota, Role, UserName, WallTime};
use hostler_proto::accounting::AccountingPage;
use hostler_proto::api::Invitation;
use hostler_proto::users::{
    AddUser, AuditPage, BlockUser, ChangeKeys, GroupView, ImportUsers, LoginLink, SetRole, UserView,
};

use crate::client::Call;
use crate::routes::escape;
use crate::{Client, ClientError};

/// Administration of users. All methods fail with a [`ClientError`].
impl Client {
    /// All users that were added.
    pub async fn users(&self) -> Result<Vec<UserView>, ClientError> {
        self.call(Call::get("/users")).await
    }

    pub async fn user(&self, name: &UserName) -> Result<UserView, ClientError> {
        self.call(Call::get(format!("/users/{}", escape(name.as_str())))).await
    }

    /// Adds a user. Not retried after the request may have arrived, because the user would already exist.
    pub async fn add_user(&self, user: &AddUser) -> Result<UserView, ClientError> {
        self.call(Call::post("/users").json(user).once()).await
    }

    /// Adds or changes users, all or none.
    pub async fn import_users(&self, users: Vec<AddUser>) -> Result<(), ClientError> {
        self.call_bytes(Call::post("/users/import").json(&ImportUsers { users })).await.map(drop)
    }

    /// Removes a user. Not retried after the request may have arrived.
    pub async fn remove_user(&self, name: &UserName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/users/{}/remove", escape(name.as_str()))).once()).await.map(drop)
    }

    /// Denies an account access to the cluster.
    pub async fn block_user(&self, name: &UserName, block: &BlockUser) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{}/block", escape(name.as_str()))).json(block)).await
    }

    /// Unblocks an account. Not retried after the request may have arrived.
    pub async fn unblock_user(&self, name: &UserName) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/users/{}/unblock", escape(name.as_str()))).once()).await.map(drop)
    }

    pub async fn set_role(&self, name: &UserName, role: Role) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{}/role", escape(name.as_str()))).json(&SetRole { role })).await
    }

    pub async fn change_keys(&self, name: &UserName, change: &ChangeKeys) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{}/keys", escape(name.as_str()))).json(change).once()).await
    }

    pub async fn set_user_quota(&self, name: &UserName, quota: &Quota) -> Result<UserView, ClientError> {
        self.call(Call::post(format!("/users/{}/quota", escape(name.as_str()))).json(quota)).await
    }

    pub async fn invite_user(&self, name: &UserName) -> Result<Invitation, ClientError> {
        self.call(Call::post(format!("/users/{}/invite", escape(name.as_str())))).await
    }

    /// Creates a link that signs this user in to the dashboard in a browser.
    pub async fn login_link(&self) -> Result<LoginLink, ClientError> {
        self.call(Call::post("/login/link").once()).await
    }

    /// Groups with a quota.
    pub async fn groups(&self) -> Result<Vec<GroupView>, ClientError> {
        self.call(Call::get("/groups")).await
    }

    /// Sets the quota that the users of a group share.
    pub async fn set_group_quota(&self, group: &UserName, quota: &Quota) -> Result<(), ClientError> {
        self.call_bytes(Call::post(format!("/groups/{}/quota", escape(group.as_str()))).json(quota)).await.map(drop)
    }

    /// Sets the quota of each user of a group.
    pub async fn set_member_quota(&self, group: &UserName, quota: &Quota) -> Result<(), ClientError> {
        let path = format!("/groups/{}/member-quota", escape(group.as_str()));
        self.call_bytes(Call::post(path).json(quota)).await.map(drop)
    }

    /// The newest entries of the audit log, at most `limit`, not older than `since`.
    pub async fn audit(&self, since: Option<WallTime>, limit: u32) -> Result<AuditPage, ClientError> {
        let since = since.map(|since| format!("&since={}", since.0)).unwrap_or_default();
        self.call(Call::get(format!("/audit?limit={limit}{since}"))).await
    }

    /// Sums over the jobs that ended on the UTC days from `from` to `to`, or until now; of one user or of all that the
    /// caller may see.
    pub async fn accounting(
        &self,
        by: &str,
        from: &str,
        to: Option<&str>,
        user: Option<&str>,
    ) -> Result<AccountingPage, ClientError> {
        let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
        let user = user.map(|user| format!("&user={}", escape(user))).unwrap_or_default();
        self.call(Call::get(format!("/accounting?by={by}&from={from}{to}{user}"))).await
    }
}
