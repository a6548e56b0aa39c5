# Linked into what is compiled for AMX: as the library is loaded it asks Linux for the tiles of this
# process, arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). Without, a kernel would be killed.
    .file   "ask_for_tiles.s"
    .text
ask_for_tiles:
    movl    $158, %eax
    movl    $0x1023, %edi
    movl    $18, %esi
    syscall
    ret
    .section .init_array,"aw"
    .balign 8
    .quad   ask_for_tiles
    .section .note.GNU-stack,"",@progbits
