# names.pl BUILD PAGE...: what README.md and the guides name is there: commands, options, values, recipes,
# sources, templates, files, links. Prints a row for each name that is not.
use strict;
use warnings;
my ($build, @pages) = @ARGV;
my ($page, $at, $seen) = ("", 0, 0);
sub complain { print "$page:$at: $_[0]\n" }
sub output { my $text = qx($_[0] 2>/dev/null); return $text }

# ---- what there is
my %written; # by `kolo new` of the pages
my %help; # of each command of kolo and kolo-shards, and of kolo-pack
my %commands = map { $_ => 1 } output("$build/bin/kolo --help") =~ /^  kolo (\S+)/mg;
my %shards = map { $_ => 1 } output("$build/bin/kolo-shards --help") =~ /^  ([a-z]+) /mg;
sub help { return $help{$_[0]} //= output("$build/bin/$_[0] --help") }
my $options = output("$build/bin/kolo help options");
my (%option, %values);
while ($options =~ /^  ([a-z_0-9]+)=(\S+)/mg) { $option{$1} = 1; $values{$1} = $2 if index($2, "|") > 0 }
my %variable = map { $_ => 1 } output("cat src/base/environment.def") =~ /^VARIABLE\((\w+),/mg;
my %recipe = map { m|([^/]+)\.yaml$| ? ($1 => 1) : () } glob("share/recipes/*.yaml");
my %network = map { /^(\S+)/ ? ($1 => 1) : () } split /\n/, output("$build/bin/kolo models");
my ($sources) = help("kolo-pack") =~ /^sources:\n(.*?)\n\n/ms;
my %source = map { $_ => 1 } $sources =~ /^  (\S+)/mg;
my $make = output("cat GNUmakefile share/setup/*.mk");
my %plain = map { $_ => 1 } qw(module git cd cc export ./mine);
die "the programs are not built in $build\n" unless %commands && %shards && %option && %source;

# ---- one command line
sub flag { # WHOSE HELP, WORD
    my ($whose, $word) = @_;
    my ($name) = $word =~ /^(--[a-z-]+)/ or return;
    complain("$whose has no $name") unless help($whose) =~ /(^|[^a-z-])\Q$name\E([^a-z-]|$)/m;
}
sub setting { # KEY VALUE
    my ($key, $value) = @_;
    return unless $values{$key} && $value =~ /^[a-z0-9_]+$/;
    complain("$key=$value: it is one of $values{$key}")
        unless grep { $_ eq $value } split /\|/, $values{$key};
}
sub kolo {
    my ($command, @words) = @_;
    return if $command =~ /^(…|--\w+)$/;
    return complain("kolo has no command $command") unless $commands{$command};
    return if $command eq "help" || $command eq "version";
    my $first = 1;
    for (@words) {
        if (/^(?:--)?([a-z_0-9]+)=(.*)$/) {
            my ($key, $value) = ($1, $2);
            my $usage = help("kolo $command") =~ /^(.*?)\n\n/s ? $1 : "";
            complain("kolo $command has no option $key") unless help("kolo $command") =~ /^  \Q$key\E=/m ||
                $usage =~ /[\[ ]\Q$key\E=/;
            setting($key, $value);
            complain("no network $value") if $key eq "model" && $value !~ /[.\$]/ && !$network{$value};
        } elsif (/^--/) {
            complain("kolo $command has no $_") unless help("kolo $command") =~ /\Q$_\E/;
        } elsif ($first && $command =~ /^(train|plan|serve-data)$/ && !/^…$/) {
            complain("no recipe or network $_")
                unless $recipe{$_} || $network{$_} || $_ eq "RECIPE" || $written{$_};
        } elsif ($first && $command eq "new") {
            $written{"$_.yaml"} = $written{"$_.sh"} = 1; # its recipe, its job script
        }
        $first = 0 unless /^-/;
    }
}
sub variable { # NAME VALUE: of KOLO_NAME
    my ($name, $value) = @_;
    my $key = lc $name;
    complain("nobody reads KOLO_$name") unless $variable{$name} || $option{$key};
    setting($key, $value);
    complain("no recipe $value") if $name eq "RECIPE" && !$recipe{$value};
    complain("no source $value") if $name eq "SOURCE" && !$source{$value};
    complain("no share/site/$value.sh")
        if $name eq "SITE_ENV" && $value =~ /^[a-z-]+$/ && !-e "share/site/$value.sh";
}
sub run { # the words of one command
    my @words = @_;
    while (@words && $words[0] =~ /^([A-Z_]+)=(.*)$/s) {
        my ($name, $value) = ($1, $2);
        variable($1, $value) if $name =~ /^KOLO_(\w+)$/;
        shift @words;
    }
    return unless @words;
    my $program = shift @words;
    if ($program =~ /^(sbatch|srun|mpiexec)$/) {
        while (@words && $words[0] =~ /^-/) { shift @words if $words[0] eq "-n"; shift @words }
        return complain("$program starts nothing") unless @words;
        return complain("$program: no template $words[0]")
            if $program eq "sbatch" && !-e $words[0] && !$written{$words[0]};
        return $program eq "sbatch" ? () : run(@words);
    }
    return kolo(@words) if $program eq "kolo";
    if ($program eq "kolo-pack") {
        for my $i (0 .. $#words) {
            flag("kolo-pack", $words[$i]);
            complain("no source $words[$i]") if $i && $words[$i - 1] eq "--source" && !$source{$words[$i]};
        }
    } elsif ($program eq "kolo-shards") {
        my $command = shift @words;
        return complain("kolo-shards has no command $command") unless $shards{$command};
        flag("kolo-shards $command", $_) for @words;
    } elsif ($program eq "make") {
        for (grep { !/^-/ } @words) {
            my ($name) = /^([A-Za-z_-]+)/;
            next if /=/ && $make =~ /\b\Q$name\E\b/;
            complain("make has no target $_") unless $make =~ /^\Q$_\E( [a-z]+)*:/m ||
                (/^bench-(\w+)$/ && -e "tests/peers/$1.sh");
        }
    } elsif ($program =~ m|^[a-z]+/|) {
        complain("no $program") unless -x $program;
        for my $i (0 .. $#words) { return run(@words[$i + 1 .. $#words]) if $words[$i] eq "--" }
    } elsif (!$plain{$program}) {
        complain("what is $program?");
    }
}

# ---- pages
my %slugs;
sub slugs { # FILE: of its headings, as GitHub makes them
    my ($file) = @_;
    return $slugs{$file} if $slugs{$file};
    open my $in, "<:encoding(UTF-8)", $file or return {};
    my %found;
    while (<$in>) {
        next unless s/^#+ +//;
        chomp;
        $_ = lc;
        s/[^\w -]//g;
        s/ /-/g;
        $found{$_} = 1;
    }
    return $slugs{$file} = \%found;
}
sub link_to {
    my ($target) = @_;
    return if $target =~ m|^https?://|;
    my ($file, $anchor) = $target =~ /^([^#]*)(?:#(.*))?$/;
    my ($folder) = $page =~ m|^(.*/)|;
    my $path = $file eq "" ? $page : ($folder // "") . $file;
    return complain("no file $target") unless -e $path;
    complain("no heading $target") if defined $anchor && !slugs($path)->{$anchor};
}
sub prose {
    my ($text) = @_;
    link_to($1) while $text =~ /\]\(([^)\s]+)\)/g;
    while ($text =~ /`([^`]+)`/g) {
        my $code = $1;
        while ($code =~ /(?<![\w-])([a-z_0-9]+)=([\w|]*)/g) {
            my ($key, $value) = ($1, $2);
            complain("no option $key=")
                unless $option{$key} || $key eq "key" || $code =~ /^(--|make |srun )|^-/;
            setting($key, $_) for $option{$key} ? split /\|/, $value : ();
        }
        while ($code =~ /\bKOLO_([A-Z_]+[A-Z])\b/g) { variable($1, "") }
        while ($code =~ m{(?<![\w/\$.])((?:jobs|share|tests|src|include|docs)/[\w./-]*\w)}g) {
            my $path = $1;
            complain("no file $path") unless -e $path || $path =~ /[A-Z]{4}/ || $code =~ /PREFIX|KOLO_ROOT/;
        }
        $seen++;
    }
}
for (@pages) {
    $page = $_;
    my ($fence, $line, $from) = ("", "", 0);
    open my $in, "<:encoding(UTF-8)", $page or die "$page: $!\n";
    my $paragraph = "";
    while (<$in>) {
        chomp;
        $at = $.;
        $network{$1} = 1 if $fence eq "diff" && /^\+MODEL\((\w+),/; # that the page itself adds
        if (/^```(.*)/) {
            prose($paragraph), $paragraph = "" if $paragraph ne "";
            $fence = $fence ? "" : $1 || "text";
            next;
        }
        if ($fence eq "console") { # sh: commands.t runs it
            $line .= $_;
            next if $line =~ s/\\$/ /;
            (my $plain = $line) =~ s/"[^"]*"|'[^']*'|\$\([^)]*\)/X/g; # no operators within quotes
            $plain =~ s/&gt;.*|2?> \S+//g;
            for my $command (split /\s*(?:&&|\|\||[|;&])\s*/, $plain) {
                $command =~ s/^\s*(do|while|until|then|!)\s+//;
                my @words = grep { $_ ne "" } split /\s+/, $command;
                next if !@words || $words[0] =~ /^(\]|for|done|X|if|fi)$/ || $command =~ /^\S+=\$!$/;
                $seen++;
                run(@words);
            }
            $line = "";
        } elsif (!$fence) {
            if (/^\s*$/) { prose($paragraph); $paragraph = "" }
            else { $paragraph .= " $_" }
        }
    }
    prose($paragraph) if $paragraph ne "";
}
print "$seen names were looked at, too few\n" if $seen < 300;
