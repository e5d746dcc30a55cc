# Reads a web server's log and adds up who asked for what, as a nightly report does.
# Usage: awk -f log_report.awk LOG
{
    lines++
    bytes += $NF
    visits[$1]++
    asked = $7
    sub(/\?.*$/, "", asked)
    if (asked ~ /\.(png|jpe?g|css|js)$/)
        static++
    split($4, moment, ":")
    hourly[moment[2]] += $NF
}
$(NF - 1) ~ /^[45]/ { failed[asked]++; failures++ }
END {
    for (address in visits) {
        addresses++
        if (visits[address] > most)
            most = visits[address]
    }
    for (page in failed)
        pages++
    for (hour in hourly)
        if (hourly[hour] > highest) {
            highest = hourly[hour]
            busiest = hour
        }
    # %.0f, because %d ends at 2^31 in some kinds of awk.
    printf "%.0f lines, %.0f bytes, %d addresses, at most %d times, ", lines, bytes, addresses, most
    printf "%d for files, %d failures of %d pages, ", static, failures, pages
    printf "most at %s\n", busiest
}
