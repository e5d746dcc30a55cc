# cluster.R POINTS: distances of all pairs, their hierarchy, and regressions within clusters.
points <- as.integer(commandArgs(trailingOnly = TRUE)[1])
set.seed(14)
x <- matrix(rnorm(points * 8), points) + 3 * sample(0:4, points, replace = TRUE)
groups <- cutree(hclust(dist(x), method = "average"), k = 12)
y <- rowSums(x) + rnorm(points)
fits <- lapply(split(data.frame(y, x), groups), function(part) {
  if (nrow(part) > 20) coef(lm(y ~ ., data = part)) else NULL
})
means <- replicate(200, mean(sample(y, replace = TRUE)))
cat(points, "points,", length(Filter(length, fits)), "fits,", format(sd(means), digits = 6), "\n")
