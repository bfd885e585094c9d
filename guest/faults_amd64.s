#include "textflag.h"

// Called by the kernel: DI = signal, SI = siginfo, DX = context.
TEXT ·faultHandler(SB),NOSPLIT|NOFRAME,$0
	MOVL 8(SI), AX // si_code
	CMPL AX, $0
	JLE  sent
	MOVQ ·goFault(SB), AX
	JMP  AX
sent:
	RET

TEXT ·faultHandlerPC(SB),NOSPLIT,$0-8
	LEAQ ·faultHandler(SB), AX
	MOVQ AX, ret+0(FP)
	RET
