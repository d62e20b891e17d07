# Who may do what, with the passwords that only the Secret knows; then the server.
set -eu
umask 077
{
    # Nobody may log in as it, but all is its: Redis 7.0 reads the AOF as this user, and leaves out,
    # without a word, what it may not do.
    echo 'user default off ~* &* +@all'
    echo "user solar on >$SOLAR_PASSWORD $(cat /etc/solar-redis/solar.acl)"
    echo "user operator on >$OPERATOR_PASSWORD ~* &* +@all"
} > /run/solar-redis/users.acl
unset SOLAR_PASSWORD OPERATOR_PASSWORD
exec valkey-server /etc/solar-redis/redis.conf
