module jostle.example/chanlock

go 1.19
