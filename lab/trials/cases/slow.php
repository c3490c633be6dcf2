<?php usleep(5000); echo "hello\n";
