# terms.rb ROUNDS: terms are made, differentiated, simplified, and counted by their text.
rounds = Integer(ARGV[0])
$state = 777
def draw(limit)
  $state = ($state * 1_103_515_245 + 12_345) & 0x7fffffff
  ($state >> 8) % limit
end

Sum = Struct.new(:left, :right)
Product = Struct.new(:left, :right)

def term(depth)
  return (draw(3) == 0 ? draw(5) : "xyz"[draw(3)].to_sym) if depth == 0
  (draw(2) == 0 ? Sum : Product).new(term(depth - 1), term(depth - 1))
end

def derived(t, by)
  case t
  when Sum then Sum.new(derived(t.left, by), derived(t.right, by))
  when Product
    Sum.new(Product.new(derived(t.left, by), t.right), Product.new(t.left, derived(t.right, by)))
  when by then 1
  else 0
  end
end

def simple(t)
  case t
  when Sum
    left, right = simple(t.left), simple(t.right)
    return right if left == 0
    return left if right == 0
    left.is_a?(Integer) && right.is_a?(Integer) ? left + right : Sum.new(left, right)
  when Product
    left, right = simple(t.left), simple(t.right)
    return 0 if left == 0 || right == 0
    return right if left == 1
    left.is_a?(Integer) && right.is_a?(Integer) ? left * right : Product.new(left, right)
  else t
  end
end

def text(t)
  case t
  when Sum then "(#{text(t.left)} + #{text(t.right)})"
  when Product then "#{text(t.left)} * #{text(t.right)}"
  else t.to_s
  end
end

total = 0
rounds.times do
  seen = Hash.new(0)
  60.times do
    made = term(8)
    %i[x y z].each { |by| seen[text(simple(derived(made, by)))[0, 40]] += 1 }
  end
  total += seen.size
end
puts "#{rounds} rounds, #{total}"
