"""flow.py IMAGES: optical flow and matched features between images that move."""

import sys

import cv2
import numpy as np

count = int(sys.argv[1])
cv2.setNumThreads(1)
rng = np.random.default_rng(13)
scene = cv2.GaussianBlur(rng.integers(0, 256, (800, 1000), dtype="u1"), (0, 0), 4)
scene = cv2.normalize(scene, None, 0, 255, cv2.NORM_MINMAX)
features = cv2.ORB_create(1500)
matcher = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True)
before, known, moved, matched = None, None, 0.0, 0
for number in range(count):
    top, left = 3 * number, 2 * number
    image = np.ascontiguousarray(scene[top : top + 600, left : left + 800])
    _, described = features.detectAndCompute(image, None)
    if before is not None:
        flow = cv2.calcOpticalFlowFarneback(before, image, None, 0.5, 4, 15, 3, 7, 1.5, 0)
        moved += float(np.median(flow[..., 1]))
        matched += len(matcher.match(known, described))
    before, known = image, described
print(f"{count} images, {moved:.2f} pixels, {matched} matches")
