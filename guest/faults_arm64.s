#include "textflag.h"

// Called by the kernel: R0 = signal, R1 = siginfo, R2 = context.
TEXT ·faultHandler(SB),NOSPLIT|NOFRAME,$0
	MOVW 8(R1), R3 // si_code
	CMPW $0, R3
	BLE  sent
	MOVD ·goFault(SB), R3
	JMP  (R3)
sent:
	RET

TEXT ·faultHandlerPC(SB),NOSPLIT,$0-8
	MOVD $·faultHandler(SB), R0
	MOVD R0, ret+0(FP)
	RET
