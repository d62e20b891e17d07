# Write the ACL file with the passwords from the Secret, then start the server.
set -eu
umask 077
# Valkey accepts an empty password, which every client can send.
: "${SOLAR_PASSWORD:?is empty in the Secret solar-redis}" "${OPERATOR_PASSWORD:?is empty in the Secret solar-redis}"
{
    # No client can log in as default, but it keeps all permissions: Redis 7.0 loads the AOF as this
    # user and silently drops commands that it may not run.
    echo 'user default off ~* &* +@all'
    echo "user solar on >$SOLAR_PASSWORD $(cat /etc/solar-redis/solar.acl)"
    echo "user operator on >$OPERATOR_PASSWORD ~* &* +@all"
} > /run/solar-redis/users.acl
unset SOLAR_PASSWORD OPERATOR_PASSWORD
exec valkey-server /etc/solar-redis/redis.conf
