// Maps ROUNDS: words are counted, grouped and sorted; tables of objects live and die.
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public final class Maps {
    private static long state = 2024;

    private static int draw(int limit) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        return (int) ((state >>> 33) % limit);
    }

    private record Entry(String word, int count, double weight) {}

    public static void main(String[] args) {
        int rounds = Integer.parseInt(args[0]);
        long total = 0;
        Map<String, Integer> kept = new HashMap<>();
        for (int round = 0; round < rounds; round++) {
            Map<String, Integer> counts = new HashMap<>();
            for (int k = 0; k < 120_000; k++) {
                int rank = draw(1 + draw(60_000));
                counts.merge("word" + rank, 1, Integer::sum);
            }
            List<Entry> entries = new ArrayList<>();
            counts.forEach((word, n) -> entries.add(new Entry(word, n, Math.sqrt(n) / word.length())));
            entries.sort(Comparator.comparingDouble(Entry::weight).thenComparing(Entry::word));
            Map<Integer, List<Entry>> byCount = new TreeMap<>();
            for (Entry each : entries) {
                byCount.computeIfAbsent(each.count(), key -> new ArrayList<>()).add(each);
            }
            for (Entry each : entries.subList(0, 2_000)) {
                kept.merge(each.word(), each.count(), Integer::sum);
            }
            total += byCount.size() + kept.size();
        }
        System.out.println(rounds + " rounds, " + total);
    }
}
