% eig.m ORDER: eigenvalues of a symmetric and a general matrix.
order = str2double(argv(){1});
rand("twister", 10);
a = rand(order);
s = eig(a + a');
g = eig(a(1:order/2, 1:order/2));
printf("%d eigenvalues, the largest %.6f and %.6f\n", numel(s), max(s), max(real(g)));
